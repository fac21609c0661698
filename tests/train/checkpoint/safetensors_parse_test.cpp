#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "lockstep/error.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/samples.h"

namespace lockstep::train {
namespace {

using test::file_of;
using test::file_with;
using test::parse_file;
using test::random_sample;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// The header's JSON with one tensor "a" of these fields.
std::string one(std::string_view fields) {
  return fmt::format("{{\"a\":{{{}}}}}", fields);
}

auto refuses(const std::string& text) {
  return ThrowsMessage<Error>(AllOf(HasSubstr("safetensors x.safetensors: "), HasSubstr(text)));
}

TEST(ParseSafetensors, TakesOthersFiles) {
  // No padding, fields and tensors in another order, spaces, no metadata.
  const auto header = parse_file(file_with(
      R"({ "b" : {"data_offsets":[2,4], "shape":[1],"dtype":"BF16"}, "a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}} )",
      4));
  EXPECT_THAT(header.tensors, ElementsAre(TensorEntry{"a", TensorType::kI8, {2}, 0, 2},
                                          TensorEntry{"b", TensorType::kBF16, {1}, 2, 4}));
  EXPECT_TRUE(header.metadata.empty());
  EXPECT_TRUE(parse_file(file_with("{}", 0)).tensors.empty());
}

TEST(ParseSafetensors, TakesEmptyTensorsAnywhere) {
  const auto header = parse_file(file_with(
      R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
      R"("f":{"dtype":"F32","shape":[0,9],"data_offsets":[2,2]}})",
      2));
  EXPECT_EQ(header.tensors.size(), 3U);
  EXPECT_THAT([] { parse_file(file_with(R"({"e":{"dtype":"U8","shape":[0],"data_offsets":[9,9]}})", 0)); },
              refuses("tensor \"e\": data_offsets are [9,9], expected to begin at 0: a hole"));
}

TEST(ParseSafetensors, RefusesHolesOverlapsAndOtherLengths) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const auto two = [&](const std::string& b) { return fmt::format("{{{},\"b\":{{{}}}}}", a, b); };
  const std::string overlap = two(R"("dtype":"U8","shape":[4],"data_offsets":[3,7])");
  const std::string hole = two(R"("dtype":"U8","shape":[4],"data_offsets":[5,9])");
  const std::string same = two(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])");
  EXPECT_THAT([&] { parse_file(file_with(overlap, 7)); },
              refuses("tensor \"b\": data_offsets are [3,7], expected"));
  EXPECT_THAT([&] { parse_file(file_with(hole, 9)); }, refuses("begin at 4: a hole"));
  EXPECT_THAT([&] { parse_file(file_with(same, 4)); }, refuses("an overlap"));
  const std::string alone = "{" + a + "}";
  EXPECT_THAT([&] { parse_file(file_with(alone, 5)); }, refuses("have 4 bytes, but the file has 5 for them"));
  EXPECT_THAT([&] { parse_file(file_with(alone, 3)); }, refuses("have 4 bytes, but the file has 3 for them"));
  EXPECT_THAT([&] { parse_file(file_with(one(R"("dtype":"U8","shape":[4],"data_offsets":[4,0])"), 4)); },
              refuses("data_offsets are [4,0]"));
}

TEST(ParseSafetensors, RefusesShapesThatDoNotFitOrOverflow) {
  const auto shape = [](std::string_view sizes, std::string_view ends, std::string_view type = "F32") {
    return one(fmt::format("\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{}]", type, sizes, ends));
  };
  EXPECT_THAT([&] { parse_file(file_with(shape("3", "0,8"), 8)); },
              refuses("has 8 bytes, but its type and shape"));
  EXPECT_THAT([&] { parse_file(file_with(shape("4294967296,4294967296", "0,0"), 0)); }, refuses("too large"));
  EXPECT_THAT([&] { parse_file(file_with(shape("4611686018427387904,4", "0,0"), 0)); }, refuses("too large"));
  EXPECT_THAT([&] { parse_file(file_with(shape("0,4611686018427387904,4", "0,0"), 0)); },
              refuses("too large"));
  EXPECT_THAT([&] { parse_file(file_with(shape("9223372036854775808", "0,0"), 0)); },
              refuses("is more than"));
  std::string many = "1";
  for (int i = 0; i < 64; ++i) many += ",1";
  EXPECT_THAT([&] { parse_file(file_with(shape(many, "0,4"), 4)); }, refuses("more than 64 sizes"));
  EXPECT_THAT([&] { parse_file(file_with(shape("1", "0,4", "F33"), 4)); },
              refuses("the dtype \"F33\" is unknown"));
  EXPECT_THAT([&] { parse_file(file_with(shape("1", "0,4,4"), 4)); }, refuses("more than 2 numbers"));
  EXPECT_THAT([&] { parse_file(file_with(shape("1", "4"), 4)); }, refuses("has 1 numbers instead of 2"));
}

TEST(ParseSafetensors, RefusesEveryKeyTwice) {
  const std::string fields = R"("dtype":"U8","shape":[0],"data_offsets":[0,0])";
  EXPECT_THAT([&] { parse_file(file_with(fmt::format("{{\"a\":{{{0}}},\"a\":{{{0}}}}}", fields), 0)); },
              refuses("\"a\" is there twice"));
  EXPECT_THAT([&] { parse_file(file_with(one(fields + R"(,"dtype":"U8")"), 0)); },
              refuses("'dtype' is there twice"));
  EXPECT_THAT([&] { parse_file(file_with(one(fields + R"(,"shape":[0])"), 0)); },
              refuses("'shape' is there twice"));
  EXPECT_THAT([&] { parse_file(file_with(R"({"__metadata__":{},"__metadata__":{}})", 0)); },
              refuses("\"__metadata__\" is there twice"));
  EXPECT_THAT([&] { parse_file(file_with(R"({"__metadata__":{"x":"1","x":"1"}})", 0)); },
              refuses("the metadata have \"x\" twice"));
}

TEST(ParseSafetensors, RefusesWrongTypesAndNesting) {
  for (const char* json : {R"([])",
                           R"({"a":1})",
                           R"({"a":[]})",
                           R"({"a":null})",
                           R"({"a":{}})",
                           R"({"a":{"dtype":"U8"}})",
                           R"({"a":{"dtype":1,"shape":[],"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":["U8"],"shape":[],"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":"U8","shape":[1e999],"data_offsets":[0,1]}})",
                           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":{"begin":0}}})",
                           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})",
                           R"({"__metadata__":null})",
                           R"({"__metadata__":[]})",
                           R"({"__metadata__":{"a":1}})",
                           R"({"__metadata__":{"a":{"b":"c"}}})",
                           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}})",
                           R"({"a")",
                           R"({} {})",
                           R"({},)",
                           "{\"\xff\":{}}"}) {
    EXPECT_THROW(parse_file(file_with(json, 1)), Error) << json;
  }
  EXPECT_THAT([] { parse_file(file_with(R"({"a":{"dtype":{"dtype":{}}}})", 0)); },
              refuses("tensor \"a\": found an object, expected a text for 'dtype'"));
  EXPECT_THROW(parse_file(file_with("{\"a\":" + std::string(1 << 20, '['), 0)), Error);
}

TEST(ParseSafetensors, RefusesHeadersThatAreNone) {
  EXPECT_THAT([] { parse_file(""); }, refuses("has 0 bytes, fewer than 8"));
  EXPECT_THAT([] { parse_file("1234567"); }, refuses("has 7 bytes, fewer than 8"));
  EXPECT_THAT([] { parse_file(file_with("", 0)); }, refuses("does not start with '{'"));
  EXPECT_THAT([] { parse_file(file_with(" {}", 0)); }, refuses("does not start with '{'"));
  EXPECT_THAT([] { parse_file(file_with("{}\n", 0)); }, refuses("does not end with '}' and spaces"));
  EXPECT_THAT([] { parse_file(file_with({"{}\0 }", 5}, 0)); }, refuses("has a zero byte"));
  EXPECT_THAT([] { parse_file(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)); },
              refuses("a header of 100000001 bytes, more than 100000000"));
  EXPECT_THAT([] { parse_file(std::string("\x03\0\0\0\0\0\0\0{}", 10)); },
              refuses("a header of 3 bytes in a file of 10"));
  // More was promised than is at hand.
  EXPECT_THAT([] { parse_safetensors(file_with("{}", 0).substr(0, 9), 10, "x.safetensors"); },
              refuses("a header of 2 bytes"));
}

TEST(ParseSafetensors, RefusesEveryTruncation) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::string file = file_of(random_sample(seed).tensors);
    for (size_t length = 0; length < file.size(); ++length) {
      ASSERT_THROW(parse_file(file.substr(0, length)), Error) << seed << ": " << length;
    }
    ASSERT_THROW(parse_file(file + " "), Error);
  }
}

// A flip in the header may give another valid one; then it must still be one of the format.
TEST(ParseSafetensors, RefusesOrKeepsTheRulesForEveryFlippedByte) {
  const test::Sample sample = random_sample(3);
  const std::string file = file_of(sample.tensors);
  const uint64_t data_begin = parse_file(file).data_begin;
  size_t refused = 0;
  for (size_t at = 0; at < data_begin; ++at) {
    for (const int mask : {0x01, 0x20, 0x80, 0xff}) {
      std::string altered = file;
      altered[at] = static_cast<char>(altered[at] ^ mask);
      try {
        const auto header = parse_file(altered);
        uint64_t end = 0;
        for (const auto& tensor : header.tensors) {
          ASSERT_EQ(std::exchange(end, tensor.end), tensor.begin);
          ASSERT_EQ(tensor_bytes(tensor.type, tensor.shape), tensor.end - tensor.begin);
        }
        ASSERT_EQ(header.data_begin + end, altered.size());
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 2 * data_begin);
}

}  // namespace
}  // namespace lockstep::train
