#include "train/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "lockstep/error.h"
#include "support/child.h"
#include "support/temporary_folder.h"
#include "train/checkpoint/samples.h"

namespace lockstep::train {
namespace {

using test::bytes_of;
using test::file_of;
using test::parse_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(SafetensorsHeader, IsTheBytesOfTheFormat) {
  const std::vector<TensorData> tensors = {
      {.name = "w", .type = TensorType::kF32, .shape = {2, 1}, .bytes = bytes_of("01234567")},
      {.name = "b", .type = TensorType::kU8, .shape = {}, .bytes = bytes_of("x")}};
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  const std::string header = safetensors_header(tensors);
  ASSERT_EQ(header.size() % 8, 0U);
  EXPECT_EQ(header, std::string({static_cast<char>(header.size() - 8), 0, 0, 0, 0, 0, 0, 0}) + json +
                        std::string(header.size() - 8 - json.size(), ' '));
  EXPECT_LT(header.size() - 8 - json.size(), 8U);
}

TEST(SafetensorsHeader, HasTheMetadataAndTheFormat) {
  const std::string header = safetensors_header({}, {{"step", "7"}, {"format", "tf"}});
  EXPECT_THAT(parse_file(header).metadata, ElementsAre(std::pair("format", "pt"), std::pair("step", "7")));
}

TEST(SafetensorsHeader, RefusesWhatNoReaderWouldTake) {
  const auto refuses_to_write = [](const std::vector<TensorData>& tensors, const std::string& text) {
    EXPECT_THAT([&] { safetensors_header(tensors); }, ThrowsMessage<UsageError>(HasSubstr(text))) << text;
  };
  const TensorData a = {.name = "a", .type = TensorType::kU8, .shape = {3}, .bytes = bytes_of("123")};
  TensorData other = a;
  refuses_to_write({a, other}, "tensor \"a\": is there twice");
  other.name = "__metadata__";
  refuses_to_write({other}, "keeps this name");
  other.name = "\xff";
  refuses_to_write({other}, "is no UTF-8");
  other = {.name = "b", .type = TensorType::kF32, .shape = {2}, .bytes = bytes_of("1234")};
  refuses_to_write({other}, "tensor \"b\": has 4 bytes, but F32 of shape [2] has 8");
  other.shape = {-1};
  refuses_to_write({other}, "is not possible");
  other.shape = {1};
  refuses_to_write({a, other}, "begin at byte 3 of the data, which is no multiple of 4");
}

TEST(SafetensorsHeader, IsAlignedOnceOrderedByWidth) {
  std::vector<TensorData> tensors = {
      {.name = "flag", .type = TensorType::kBool, .shape = {1}, .bytes = bytes_of("\1")},
      {.name = "half", .type = TensorType::kBF16, .shape = {1}, .bytes = bytes_of("12")},
      {.name = "one", .type = TensorType::kF32, .shape = {1}, .bytes = bytes_of("1234")},
      {.name = "two", .type = TensorType::kI32, .shape = {1}, .bytes = bytes_of("1234")},
      {.name = "long", .type = TensorType::kI64, .shape = {1}, .bytes = bytes_of("12345678")}};
  order_by_width(tensors);
  std::vector<std::string> names;
  for (const auto& tensor : parse_file(file_of(tensors)).tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("long", "one", "two", "half", "flag"));
}

TEST(TensorBytes, CountsOrRefusesOverflow) {
  EXPECT_EQ(tensor_bytes(TensorType::kF32, {}), 4U);
  EXPECT_EQ(tensor_bytes(TensorType::kF64, {3, 5}), 120U);
  EXPECT_EQ(tensor_bytes(TensorType::kBool, {7, 0, 2}), 0U);
  EXPECT_EQ(tensor_bytes(TensorType::kU8, {int64_t{1} << 62}), uint64_t{1} << 62);
  EXPECT_EQ(tensor_bytes(TensorType::kI16, {int64_t{1} << 62}), std::nullopt);
  EXPECT_EQ(tensor_bytes(TensorType::kU8, {int64_t{1} << 32, int64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(tensor_bytes(TensorType::kU8, {0, int64_t{1} << 62, 4}), std::nullopt);
  EXPECT_EQ(tensor_bytes(TensorType::kU8, {-1}), std::nullopt);
  EXPECT_EQ(tensor_bytes(TensorType::kU8, std::vector<int64_t>(65, 1)), std::nullopt);
}

TEST(SafetensorsFile, GivesBackWhatWasWritten) {
  const test::TemporaryFolder folder;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const test::Sample sample = test::random_sample(seed);
    const std::string name = fmt::format("{}.safetensors", seed);
    const Seal seal =
        write_safetensors(folder.path(), name, sample.tensors, {{"seed", fmt::format("{}", seed)}});
    const SafetensorsFile file(folder / name);
    EXPECT_EQ(seal, seal_of(folder / name));
    EXPECT_EQ(file.header().metadata.at("seed"), fmt::format("{}", seed));
    ASSERT_EQ(file.header().tensors.size(), sample.tensors.size());
    for (const TensorData& tensor : sample.tensors) {
      const TensorEntry* found = file.find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->type, tensor.type);
      EXPECT_EQ(found->shape, tensor.shape);
      EXPECT_TRUE(std::ranges::equal(file.bytes(*found), tensor.bytes));
    }
    EXPECT_EQ(file.find("no such"), nullptr);
  }
}

TEST(SafetensorsFile, StaysValidWhenMoved) {
  const test::TemporaryFolder folder;
  const TensorData tensor = {.name = "w", .type = TensorType::kU8, .shape = {4}, .bytes = bytes_of("abcd")};
  write_safetensors(folder.path(), "one", {tensor});
  write_safetensors(folder.path(), "two", {});
  SafetensorsFile moved(folder / "two");
  {
    SafetensorsFile file(folder / "one");
    SafetensorsFile between(std::move(file));
    moved = std::move(between);
  }
  ASSERT_NE(moved.find("w"), nullptr);
  EXPECT_TRUE(std::ranges::equal(moved.bytes(*moved.find("w")), bytes_of("abcd")));
}

TEST(SafetensorsFile, RefusesWhatIsNoFile) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "empty", "");
  EXPECT_THAT([&] { SafetensorsFile(folder / "empty"); }, ThrowsMessage<Error>(HasSubstr("empty: is empty")));
  EXPECT_THAT([&] { SafetensorsFile(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("is not a regular file")));
  EXPECT_THAT([&] { SafetensorsFile(folder / "none"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("none"), HasSubstr("No such file"))));
}

// A reader made of nothing but the format's description.
constexpr const char* kPythonReader = R"(
import json, struct, sys, torch
with open(sys.argv[1], 'rb') as file:
    length = struct.unpack('<Q', file.read(8))[0]
    header = json.loads(file.read(length))
    data = bytearray(file.read())
types = {'F32': torch.float32, 'I64': torch.int64, 'BOOL': torch.bool, 'BF16': torch.bfloat16}
print(header.pop('__metadata__'))
for name, entry in header.items():
    begin, end = entry['data_offsets']
    tensor = torch.frombuffer(data[begin:end], dtype=types[entry['dtype']]).reshape(entry['shape'])
    print(name, tensor.dtype, tensor.tolist())
)";

TEST(SafetensorsFile, IsReadByPython) {
  const test::TemporaryFolder folder;
  const std::vector<float> floats = {1, 2.5, -3, 4, 5, 6};
  const std::vector<int64_t> longs = {-1};
  const std::vector<uint16_t> halves = {0x3f80, 0xc000};  // 1 and -2
  write_safetensors(
      folder.path(), "x",
      {{.name = "flags", .type = TensorType::kBool, .shape = {3}, .bytes = bytes_of({"\1\0\1", 3})},
       {.name = "größe",
        .type = TensorType::kF32,
        .shape = {2, 3},
        .bytes = std::as_bytes(std::span(floats))},
       {.name = "halves", .type = TensorType::kBF16, .shape = {2}, .bytes = std::as_bytes(std::span(halves))},
       {.name = "count", .type = TensorType::kI64, .shape = {}, .bytes = std::as_bytes(std::span(longs))}});
  test::Child python({"/usr/bin/python3", "-c", kPythonReader, (folder / "x").string()},
                     {.environment = {{"PYTHONIOENCODING", "utf-8"}}});
  ASSERT_EQ(python.wait(), 0) << python.errors();
  EXPECT_EQ(python.output(),
            "{'format': 'pt'}\n"
            "count torch.int64 -1\n"
            "größe torch.float32 [[1.0, 2.5, -3.0], [4.0, 5.0, 6.0]]\n"
            "halves torch.bfloat16 [1.0, -2.0]\n"
            "flags torch.bool [True, False, True]\n");
}

}  // namespace
}  // namespace lockstep::train
