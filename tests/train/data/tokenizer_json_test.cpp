#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/error.h"
#include "lockstep/train/data/tokenizer.h"
#include "train/data/random_text.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(TokenizerJson, IsStable) {
  EXPECT_EQ(Tokenizer::characters("b\"\n\xc3\xa9").to_json(),
            "{\"lockstep_tokenizer\": 1,\n\"kind\": \"char\",\n\"tokens\": [\"\\n\", \"\\\"\", \"b\", "
            "\"\xc3\xa9\"]}\n");
  EXPECT_EQ(Tokenizer::byte_pairs("abab abab", 300).to_json(),
            "{\"lockstep_tokenizer\": 1,\n\"kind\": \"bpe\",\n\"merges\": [[97, 98], [256, 256]]}\n");
}

TEST(TokenizerJson, ReadsBackToATokenizerThatEncodesAlike) {
  test::Random random(6);
  for (int round = 0; round < 20; ++round) {
    const std::string text = test::random_utf8(random, 300) + test::random_words(random, 300);
    for (const auto& tokenizer : {Tokenizer::characters(text), Tokenizer::byte_pairs(text, 290)}) {
      const auto read = Tokenizer::parse(tokenizer.to_json());
      EXPECT_EQ(read.kind(), tokenizer.kind());
      EXPECT_EQ(read.encode(text), tokenizer.encode(text));
      EXPECT_EQ(read.to_json(), tokenizer.to_json());
    }
  }
}

struct Refusal {
  std::string json;
  std::string reason;
};

std::string document(const std::string& kind, const std::string& key, const std::string& list) {
  return R"({"lockstep_tokenizer": 1, "kind": ")" + kind + R"(", ")" + key + R"(": )" + list + "}";
}

TEST(TokenizerJson, RefusesHostileTextByPlaceAndReason) {
  const Refusal refusals[] = {
      {"", "not valid JSON"},
      {"{", "not valid JSON"},
      {"[]", "/: is no object"},
      {"{}", "'lockstep_tokenizer' is missing"},
      {R"({"lockstep_tokenizer": 2, "kind": "char", "tokens": ["a"]})", "2 is not between 1 and 1"},
      {R"({"lockstep_tokenizer": 1, "kind": 7, "tokens": ["a"]})", "/kind: is no text"},
      {R"({"lockstep_tokenizer": 1, "kind": "bpe", "kind": "char", "tokens": ["a"]})",
       "'kind' is there twice"},
      {R"({"lockstep_tokenizer": 1, "kind": "char", "tokens": ["a"], "more": 1})", "has 4 entries, not 3"},
      {R"({"lockstep_tokenizer": 1e999, "kind": "char", "tokens": ["a"]})", "out of range"},
      {document("word", "tokens", "[]"), "/kind: 'word' is unknown"},
      {document("char", "merges", "[]"), "'tokens' is missing"},
      {document("char", "tokens", "{}"), "/tokens: is no array"},
      {document("char", "tokens", "[]"), "/tokens: has 0 entries"},
      {document("char", "tokens", R"(["a", 3])"), "/tokens/1: is no text"},
      {document("char", "tokens", R"(["ab"])"), "/tokens/0: 'ab' is not one character"},
      {document("char", "tokens", R"([""])"), "/tokens/0: '' is not one character"},
      {document("char", "tokens", R"(["a", "a"])"), "/tokens/1: U+0061 'a' is there twice"},
      {document("char", "tokens", R"(["b", "a"])"), "/tokens/1: U+0061 'a' is behind a greater"},
      {document("char", "tokens", "[\"\xff\"]"), "not valid JSON"},
      {document("bpe", "merges", R"([[97, 98], 5])"), "/merges/1: is no array"},
      {document("bpe", "merges", R"([[97]])"), "/merges/0: has 1 entries, not 2"},
      {document("bpe", "merges", R"([[97, "b"]])"), "/merges/0/1: is no whole number"},
      {document("bpe", "merges", R"([[97, 98.5]])"), "/merges/0/1: is no whole number"},
      {document("bpe", "merges", R"([[256, 97]])"), "/merges/0/0: 256 is not between 0 and 255"},
      {document("bpe", "merges", R"([[97, 98], [97, 257]])"), "/merges/1/1: 257 is not between 0 and 256"},
      {document("bpe", "merges", R"([[97, -1]])"), "/merges/0/1: -1 is not between"},
      {document("bpe", "merges", R"([[97, 18446744073709551615]])"),
       "/merges/0/1: 18446744073709551615 is not"},
      {document("bpe", "merges", R"([[97, 98], [97, 98]])"),
       "/merges/1: makes a token that is there already"},
      {document("bpe", "merges", R"([[97, 98], [98, 99], [256, 99], [97, 257]])"),
       "/merges/3: makes a token that is"},
  };
  for (const auto& [json, reason] : refusals) {
    EXPECT_THAT([&text = json] { Tokenizer::parse(text); }, ThrowsMessage<UsageError>(HasSubstr(reason)))
        << json;
  }
}

TEST(TokenizerJson, RefusesTokensThatDoubleWithoutEnd) {
  std::string merges = "[97, 97]";
  for (int token = 256; token < 400; ++token) merges += fmt::format(", [{0}, {0}]", token);
  EXPECT_THAT([&] { Tokenizer::parse(document("bpe", "merges", "[" + merges + "]")); },
              ThrowsMessage<UsageError>(HasSubstr("/merges/8: makes a token of 512 bytes, more than 256")));
}

TEST(TokenizerJson, RefusesHugeSizesBeforeItReadsThem) {
  EXPECT_THAT([] { Tokenizer::parse(std::string(9U << 20U, ' ')); },
              ThrowsMessage<UsageError>(HasSubstr("9437184 bytes, more than 8388608")));
  std::string list = "[0";
  for (int i = 0; i < 262'144; ++i) list += ",0";
  EXPECT_THAT([&] { Tokenizer::parse(document("bpe", "merges", list + "]")); },
              ThrowsMessage<UsageError>(HasSubstr("/merges: has 262145 entries")));
  EXPECT_THAT([&] { Tokenizer::parse(document("char", "tokens", list + "]")); },
              ThrowsMessage<UsageError>(HasSubstr("/tokens: has 262145 entries")));
}

}  // namespace
}  // namespace lockstep
