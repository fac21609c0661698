#include "train/data/language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lockstep/error.h"

namespace lockstep::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kLength = 4;

/// `count` characters, the i-th of which is the (i modulo 26)-th letter.
std::string letters(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += static_cast<char>('a' + i % 26);
  return text;
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<int64_t>& tokens) {
  std::string text;
  for (const int64_t token : tokens) text += tokenizer.text_of(static_cast<int32_t>(token));
  return text;
}

class Text : public testing::Test {
 protected:
  TextLanguage make(size_t count) const { return {letters(count), tokenizer_, kLength, "a.txt"}; }
  std::string train(const TextLanguage& language, int64_t index) const {
    std::vector<int64_t> tokens;
    language.append_train(index, tokens);
    return text_of(tokenizer_, tokens);
  }
  std::string validation(const TextLanguage& language, int64_t index) const {
    std::vector<int64_t> tokens;
    language.append_validation(index, tokens);
    return text_of(tokenizer_, tokens);
  }

  const Tokenizer tokenizer_ = Tokenizer::characters(letters(26));
};

TEST_F(Text, ASampleBeginsWithTheTokenThatTheOneBeforeItHadToGuess) {
  const auto language = make(100);
  EXPECT_EQ(train(language, 0), "abcde");
  EXPECT_EQ(train(language, 1), "efghi");
}

TEST_F(Text, TheLastTenthIsForValidationAndNoTokenOfItIsTrainedOn) {
  const std::string text = letters(200);
  const auto language = make(text.size());
  EXPECT_EQ(validation(language, 0), text.substr(180, kLength + 1));
  const auto last = train(language, language.train_size() - 1);
  // Where it is: 200 letters hold every five of them several times, so by its place.
  const auto behind = static_cast<size_t>(language.train_size() - 1) * kLength + last.size();
  EXPECT_EQ(last, text.substr(behind - last.size(), last.size()));
  EXPECT_LE(behind, 180U);
  EXPECT_GT(behind + kLength, 180U) << "tokens are left out";
  const auto end = validation(language, language.validation_size() - 1);
  EXPECT_EQ(end.size(), static_cast<size_t>(kLength + 1));
}

TEST_F(Text, OneSampleOfEachKindIsTheLeastAndLessIsRefusedByNameAndCount) {
  const auto least = make(2 * (kLength + 1));
  EXPECT_EQ(least.train_size(), 1);
  EXPECT_EQ(least.validation_size(), 1);
  EXPECT_THAT([&] { make(2 * (kLength + 1) - 1); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("--data a.txt: 9 tokens"), HasSubstr("at least 10"), HasSubstr("hint:"))));
}

TEST_F(Text, ItsFingerprintIsThatOfEveryByte) {
  std::string text = letters(100);
  const TextLanguage one(text, tokenizer_, kLength, "one"), same(text, tokenizer_, kLength, "same");
  text.back() = 'a';
  const TextLanguage other(text, tokenizer_, kLength, "one");
  EXPECT_EQ(one.fingerprint(), same.fingerprint());
  EXPECT_NE(one.fingerprint(), other.fingerprint());
}

TEST_F(Text, ItsEntropyNobodyKnows) {
  EXPECT_FALSE(make(100).entropy());
  EXPECT_FALSE(make(100).validation_floor(1));
}

TEST(GrammarText, SamplesAreAFunctionOfSeedAndIndexAndOfOneLength) {
  const Grammar grammar;
  const auto tokenizer = Tokenizer::characters(grammar.alphabet());
  const auto sample = [&](uint64_t seed, int64_t index, bool is_train) {
    const GrammarLanguage language(tokenizer, 16, seed);
    std::vector<int64_t> tokens;
    is_train ? language.append_train(index, tokens) : language.append_validation(index, tokens);
    return text_of(tokenizer, tokens);
  };
  std::set<std::string> all;
  for (const uint64_t seed : {1U, 2U}) {
    for (const int64_t index : {0, 1}) {
      for (const bool is_train : {true, false}) {
        const auto text = sample(seed, index, is_train);
        EXPECT_EQ(text.size(), 17U);
        EXPECT_EQ(text.front(), '\n') << "the beginning of a sentence is to be guessed, too";
        EXPECT_EQ(text, sample(seed, index, is_train));
        all.insert(text);
      }
    }
  }
  EXPECT_EQ(all.size(), 8U) << "validation is not trained on";
}

TEST(GrammarText, TheFloorOfItsValidationComesToTheEntropy) {
  const Grammar grammar;
  const GrammarLanguage language(Tokenizer::characters(grammar.alphabet()), 64, 3);
  const auto floor = language.validation_floor(language.validation_size()).value();
  EXPECT_NEAR(floor.nats, language.entropy().value(), 5 * floor.standard_error);
  EXPECT_GT(floor.standard_error, 0);
  EXPECT_TRUE(floor.is_passed_by(floor.nats - 1.01 * floor.standard_error));
  EXPECT_FALSE(floor.is_passed_by(floor.nats - 0.99 * floor.standard_error));
}

}  // namespace
}  // namespace lockstep::train
