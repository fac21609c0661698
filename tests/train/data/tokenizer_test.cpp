#include "lockstep/train/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/error.h"
#include "train/data/byte_pairs.h"
#include "train/data/random_text.h"

namespace lockstep {
namespace {

using test::Random;
using test::random_utf8;
using test::random_words;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string random_bytes(Random& random, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>(random());
  return text;
}

using Words = std::vector<std::vector<std::string>>;

Words split(const std::string& text) {
  Words words;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = i == 0 || text[i] == ' ' || text[i] == '\n' || text[i - 1] == '\n';
    if (begins) words.emplace_back();
    words.back().push_back(text.substr(i, 1));
  }
  return words;
}

void apply(Words& words, const std::pair<std::string, std::string>& pair) {
  for (auto& word : words) {
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      if (word[i] != pair.first || word[i + 1] != pair.second) continue;
      word[i] += word[i + 1];
      word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
}

/// Byte pairs by counting all anew before every merge: what learn_merges() must equal.
std::vector<std::pair<std::string, std::string>> naive_merges(const std::string& text, size_t most) {
  Words words = split(text);
  std::vector<std::pair<std::string, std::string>> merges;
  while (merges.size() < most) {
    std::map<std::pair<std::string, std::string>, int> counts;
    for (const auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    auto best = counts.end();
    for (auto pair = counts.begin(); pair != counts.end(); ++pair) {
      if (best == counts.end() || pair->second > best->second) best = pair;
    }
    if (best == counts.end() || best->second < 2) break;
    merges.push_back(best->first);
    apply(words, best->first);
  }
  return merges;
}

TEST(CharacterTokenizer, NumbersCodePointsInTheirOrder) {
  const auto tokenizer = Tokenizer::characters(
      "b\xc3\xa9"
      "a\nb");
  EXPECT_EQ(tokenizer.kind(), "char");
  EXPECT_EQ(tokenizer.vocab_size(), 4);
  EXPECT_THAT(tokenizer.encode("ab\xc3\xa9\n"), ElementsAre(1, 2, 3, 0));
  EXPECT_EQ(tokenizer.text_of(3), "\xc3\xa9");
}

TEST(CharacterTokenizer, DecodesWhatItEncoded) {
  Random random(1);
  for (size_t size = 1; size < 300; size += 7) {
    const std::string text = random_utf8(random, size);
    const auto tokenizer = Tokenizer::characters(text);
    EXPECT_EQ(tokenizer.encode(text).size(), size);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(CharacterTokenizer, RefusesAForeignCharacterByNameAndPlace) {
  const auto tokenizer = Tokenizer::characters("abc");
  EXPECT_THAT([&] { tokenizer.encode("caf\xc3\xa9"); },
              ThrowsMessage<UsageError>(HasSubstr("byte 2 begins U+0066 'f'")));
  EXPECT_THAT(
      [&] { tokenizer.encode("ca\xc3\xa9"); },
      ThrowsMessage<UsageError>(HasSubstr("byte 2 begins U+00E9 '\xc3\xa9', which is not among the 3")));
  EXPECT_THAT([&] { tokenizer.encode("\x1b"); },
              ThrowsMessage<UsageError>(HasSubstr("byte 0 begins U+001B, which")));
}

TEST(CharacterTokenizer, RefusesBytesThatAreNotUtf8) {
  const auto tokenizer = Tokenizer::characters("ab");
  EXPECT_THAT([&] { tokenizer.encode("a\xff"); }, ThrowsMessage<UsageError>(HasSubstr("byte 1 is 0xff")));
  EXPECT_THAT([] { Tokenizer::characters("ab\xc3"); },
              ThrowsMessage<UsageError>(HasSubstr("byte 2 is 0xc3")));
}

TEST(CharacterTokenizer, RefusesAnEmptyText) {
  EXPECT_THROW(Tokenizer::characters(""), UsageError);
}

TEST(BytePairs, MergeTheMostFrequentPairFirst) {
  const auto tokenizer = Tokenizer::byte_pairs("abc abd bd bd bd", 258);
  EXPECT_EQ(tokenizer.kind(), "bpe");
  EXPECT_EQ(tokenizer.text_of(256), "bd");
  EXPECT_EQ(tokenizer.text_of(257), " bd");
  EXPECT_THAT(tokenizer.encode("bd bd"), ElementsAre(256, 257));
}

TEST(BytePairs, TakeTheSmallestOfPairsThatAreEquallyFrequent) {
  const auto tokenizer = Tokenizer::byte_pairs("\xf0z\nzz\naz\nay\nay\naz\nzz\n\xf0z", 260);
  EXPECT_EQ(tokenizer.text_of(256), "ay");
  EXPECT_EQ(tokenizer.text_of(257), "az");
  EXPECT_EQ(tokenizer.text_of(258), "zz");
  EXPECT_EQ(tokenizer.text_of(259), "\xf0z");
}

TEST(BytePairs, StopWhenNothingRepeats) {
  EXPECT_EQ(Tokenizer::byte_pairs("abcdef", 1000).vocab_size(), 256);
  EXPECT_EQ(Tokenizer::byte_pairs("", 1000).vocab_size(), 256);
  EXPECT_EQ(Tokenizer::byte_pairs("abab", 1000).vocab_size(), 257);
}

TEST(BytePairs, KeepNewlinesAloneAndSpacesInFront) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "a b\n  c ";
  const auto tokenizer = Tokenizer::byte_pairs(text, 300);
  for (int32_t token = 256; token < tokenizer.vocab_size(); ++token) {
    EXPECT_EQ(tokenizer.text_of(token).find('\n'), std::string::npos);
    EXPECT_EQ(tokenizer.text_of(token).find(' ', 1), std::string::npos) << tokenizer.text_of(token);
  }
  EXPECT_EQ(tokenizer.vocab_size(), 259) << "' a', ' b' and ' c'";
}

TEST(BytePairs, AreLearnedAsByCountingAnew) {
  Random random(2);
  for (int round = 0; round < 60; ++round) {
    const std::string text = random_words(random, random() % 600);
    std::vector<std::pair<std::string, std::string>> found;
    const auto merges = train::learn_merges(text, 60);
    const auto texts = train::token_texts(merges);
    for (const auto& [left, right] : merges) {
      found.emplace_back(texts[static_cast<size_t>(left)], texts[static_cast<size_t>(right)]);
    }
    EXPECT_EQ(found, naive_merges(text, 60)) << text;
  }
}

TEST(BytePairs, EncodeAsByMergeAfterMerge) {
  Random random(3);
  for (int round = 0; round < 60; ++round) {
    const std::string learned = random_words(random, 500);
    const auto tokenizer = Tokenizer::byte_pairs(learned, 300);
    const std::string text = random_words(random, 500);
    Words words = split(text);
    for (const auto& pair : naive_merges(learned, 300 - 256)) apply(words, pair);
    std::vector<std::string> expected;
    for (const auto& word : words) expected.insert(expected.end(), word.begin(), word.end());
    std::vector<std::string> found;
    for (const int32_t token : tokenizer.encode(text)) found.push_back(tokenizer.text_of(token));
    EXPECT_EQ(found, expected);
  }
}

TEST(BytePairs, DecodeWhatTheyEncodedWhateverTheBytes) {
  Random random(4);
  const auto tokenizer = Tokenizer::byte_pairs(random_words(random, 4000) + random_bytes(random, 4000), 600);
  for (size_t size = 0; size < 400; size += 9) {
    for (const std::string& text :
         {random_bytes(random, size), random_utf8(random, size), random_words(random, size)}) {
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    }
  }
}

TEST(BytePairs, AreLearnedAlikeEveryTime) {
  Random random(5);
  const std::string text = random_words(random, 5000);
  EXPECT_EQ(Tokenizer::byte_pairs(text, 400).to_json(), Tokenizer::byte_pairs(text, 400).to_json());
}

TEST(BytePairs, HandleAWordAsLongAsTheText) {
  const std::string text(200'000, 'a');
  const auto tokenizer = Tokenizer::byte_pairs(text, 4000);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    EXPECT_LE(tokenizer.text_of(token).size(), 256U);
  }
}

TEST(BytePairs, RefuseAVocabularyThatCannotBe) {
  EXPECT_THAT([] { Tokenizer::byte_pairs("a", 255); }, ThrowsMessage<UsageError>(HasSubstr("of 255; hint")));
  EXPECT_THROW(Tokenizer::byte_pairs("a", Tokenizer::kMaxVocab + 1), UsageError);
}

TEST(Tokenizer, RefusesTokensOutsideTheVocabulary) {
  const auto tokenizer = Tokenizer::characters("abc");
  EXPECT_THAT(
      [&] {
        tokenizer.decode({0, 3});
      },
      ThrowsMessage<UsageError>("Tokenizer: token 1 is 3; hint: they are 0 to 2"));
  EXPECT_THROW(tokenizer.decode({-1}), UsageError);
  EXPECT_THROW(tokenizer.text_of(3), UsageError);
  EXPECT_THROW(tokenizer.text_of(-1), UsageError);
}

}  // namespace
}  // namespace lockstep
