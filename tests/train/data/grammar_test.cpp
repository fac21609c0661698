#include "lockstep/train/data/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "lockstep/error.h"
#include "train/data/grammar_table.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Gt;
using testing::HasSubstr;
using testing::Le;
using testing::StartsWith;
using testing::ThrowsMessage;

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

bool is_made(const Grammar& grammar, const std::string& text) {
  try {
    grammar.surprisal(text);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

/// Every text of `length` characters that goes on from `text`.
std::vector<std::string> texts(const Grammar& grammar, const std::string& text, size_t length) {
  if (text.size() == length) return {text};
  std::vector<std::string> found;
  for (const char character : grammar.alphabet()) {
    if (!is_made(grammar, text + character)) continue;
    for (auto& longer : texts(grammar, text + character, length)) found.push_back(std::move(longer));
  }
  return found;
}

/// One sentence as the table says, word by word, and -ln of its probability.
std::pair<std::string, double> read_table(std::mt19937_64& random) {
  namespace table = train::grammar;
  std::string text;
  double nats = 0;
  auto slot = table::kSentence;
  do {
    std::vector<const table::Rule*> rules;
    for (const auto& rule : table::kRules) {
      if (rule.from == slot) rules.push_back(&rule);
    }
    const table::Rule& rule = *rules[random() % rules.size()];
    const table::Word& word = rule.words[random() % rule.words.size()];
    text += word.text;
    nats -= std::log(rule.share / 100.0) + std::log(word.share / 100.0);
    slot = rule.to;
  } while (slot != table::kSentence);
  return {text, nats};
}

TEST(Grammar, MakesTheSameTextForever) {
  EXPECT_EQ(Grammar().sample(0, 0, 160),
            "a red bird hugs me now.\n"
            "all kings want two cups.\n"
            "a fox sees a key.\n"
            "two shy men see a hat.\n"
            "the tiny fox sees him.\n"
            "the dogs like the ball.\n"
            "two men that need it ge");
}

TEST(Grammar, MakesTheSameLongTextForever) {
  // FNV-1a: a draw that falls on the border of two words counts, too, and such draws are rare.
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char character : Grammar().sample(1, 2, 300'000)) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3U;
  }
  EXPECT_EQ(hash, 5552015166744462475U);
}

TEST(Grammar, GivesAShorterSampleAsTheBeginningOfALongerOne) {
  const Grammar grammar;
  for (uint64_t index = 0; index < 50; ++index) {
    EXPECT_THAT(grammar.sample(3, index, 64), StartsWith(grammar.sample(3, index, 20)));
  }
  EXPECT_EQ(grammar.sample(3, 0, 0), "");
  EXPECT_EQ(grammar.sample(3, 0, 1000).size(), 1000U);
}

TEST(Grammar, MakesAnotherTextForEachSeedAndIndex) {
  const Grammar grammar;
  std::set<std::string> samples;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    for (uint64_t index = 0; index < 30; ++index) samples.insert(grammar.sample(seed, index, 100));
  }
  EXPECT_EQ(samples.size(), 900U);
}

TEST(Grammar, KnowsTheEntropyOfItsSamples) {
  const Grammar grammar;
  for (const size_t length : {5U, 64U, 200U}) {
    constexpr int kSamples = 4000;
    double total = 0;
    double squares = 0;
    for (uint64_t index = 0; index < kSamples; ++index) {
      const double mean =
          sum(grammar.surprisal(grammar.sample(1, index, length))) / static_cast<double>(length);
      total += mean;
      squares += mean * mean;
    }
    const double mean = total / kSamples;
    const double error = std::sqrt((squares / kSamples - mean * mean) / (kSamples - 1));
    EXPECT_NEAR(mean, grammar.entropy(length), 4 * error) << length;
  }
}

TEST(Grammar, HasTheEntropyOfAllItsShortTexts) {
  const Grammar grammar;
  for (size_t length = 1; length <= 7; ++length) {
    double all = 0;
    double nats = 0;
    for (const std::string& text : texts(grammar, "", length)) {
      const double surprise = sum(grammar.surprisal(text));
      all += std::exp(-surprise);
      nats += std::exp(-surprise) * surprise;
    }
    EXPECT_NEAR(all, 1.0, 1e-12) << length;
    EXPECT_NEAR(nats / static_cast<double>(length), grammar.entropy(length), 1e-12) << length;
  }
}

TEST(Grammar, GivesASentenceTheProbabilityOfItsWords) {
  const Grammar grammar;
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const auto [text, nats] = read_table(random);
    EXPECT_NEAR(sum(grammar.surprisal(text)), nats, 1e-9) << text;
  }
}

TEST(Grammar, HasAnEntropyRateThatASmallModelCanReach) {
  EXPECT_THAT(Grammar().entropy(64), AllOf(Gt(0.5), Le(0.8)));
}

TEST(Grammar, KeepsToAShortAlphabet) {
  const Grammar grammar;
  EXPECT_LE(grammar.alphabet().size(), 32U);
  EXPECT_TRUE(std::is_sorted(grammar.alphabet().begin(), grammar.alphabet().end()));
  const std::string text = grammar.sample(2, 0, 100'000);
  const std::set<char> used(text.begin(), text.end());
  EXPECT_EQ(std::string(used.begin(), used.end()), grammar.alphabet());
}

TEST(Grammar, MostlyMakesSentencesOfFifteenToFortyCharacters) {
  const std::string text = Grammar().sample(5, 0, 100'000);
  int sentences = 0;
  int fitting = 0;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const size_t length = end + 1 - begin;
    ++sentences;
    if (length >= 15 && length <= 40) ++fitting;
  }
  EXPECT_GT(fitting, sentences * 3 / 4);
}

TEST(Grammar, LetsAVerbAgreeWithItsSubjectOverADistance) {
  const Grammar grammar;
  EXPECT_TRUE(is_made(grammar, "the red cats that tom sees like a ball here.\n"));
  EXPECT_TRUE(is_made(grammar, "the red cat that the dogs see likes a ball here.\n"));
  EXPECT_FALSE(is_made(grammar, "the red cats that tom sees likes "));
  EXPECT_FALSE(is_made(grammar, "the red cat that the dogs see like "));
  EXPECT_FALSE(is_made(grammar, "the red cats that tom see "));
}

TEST(Grammar, RefusesForeignTextByItsPlace) {
  const Grammar grammar;
  EXPECT_THAT([&] { grammar.surprisal("the cats sees"); },
              ThrowsMessage<UsageError>("Grammar: character 12 is 's'; hint: the grammar makes ' ' there"));
  EXPECT_THAT(
      [&] { grammar.surprisal("\n"); },
      ThrowsMessage<UsageError>(StartsWith("Grammar: character 0 is '\\n'; hint: the grammar makes 'a', ")));
  EXPECT_THAT([&] { grammar.surprisal("he runs.\nhe \xff"); },
              ThrowsMessage<UsageError>(HasSubstr("character 12 is byte 0xff")));
}

TEST(Grammar, RefusesTheEntropyOfNothing) {
  EXPECT_THAT([] { Grammar().entropy(0); }, ThrowsMessage<UsageError>(HasSubstr("0 characters")));
}

TEST(Grammar, IsNeverSurprisedWithoutAChoice) {
  const std::vector<double> nats = Grammar().surprisal("two men ");
  EXPECT_GT(nats[1], 0) << "two, the, they or tom";
  EXPECT_EQ(nats[2], 0);
  EXPECT_EQ(nats[3], 0);
}

}  // namespace
}  // namespace lockstep
