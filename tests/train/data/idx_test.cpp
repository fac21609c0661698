#include "train/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "lockstep/error.h"
#include "support/temporary_folder.h"

namespace lockstep::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

std::string words(const std::vector<uint32_t>& numbers) {
  std::string bytes;
  for (const uint32_t number : numbers) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift);
  }
  return bytes;
}

const std::string kLabels = words({0x801, 3}) + std::string("\x07\x00\xff", 3);
const std::string kImages = words({0x803, 2, 1, 3}) + "abcdef";

auto is_refused(const std::string& bytes, const std::string& reason) {
  EXPECT_THAT([&] { parse_idx(bytes, "name"); },
              ThrowsMessage<UsageError>(AllOf(StartsWith("name: "), HasSubstr(reason))));
}

TEST(ParseIdx, ReadsLabels) {
  const Idx idx = parse_idx(kLabels, "labels");
  EXPECT_THAT(idx.shape, ElementsAre(3));
  EXPECT_THAT(idx.values, ElementsAre(7, 0, 255));
}

TEST(ParseIdx, ReadsImages) {
  const Idx idx = parse_idx(kImages, "images");
  EXPECT_THAT(idx.shape, ElementsAre(2, 1, 3));
  EXPECT_THAT(idx.values, ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
}

TEST(ParseIdx, ReadsDimensionsGreatestByteFirst) {
  EXPECT_THAT(parse_idx(words({0x801, 258}) + std::string(258, 'x'), "name").shape, ElementsAre(258));
}

TEST(ParseIdx, RefusesEveryBeginningOfAFile) {
  for (const std::string& whole : {kLabels, kImages}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THROW(parse_idx(std::string_view(whole).substr(0, size), "name"), UsageError) << size;
    }
  }
}

TEST(ParseIdx, RefusesMoreThanTheShapeSays) {
  is_refused(kLabels + "x", "its shape is 3, 3 values, but 4 bytes follow");
  is_refused(kImages + "x", "its shape is 2 x 1 x 3, 6 values, but 7 bytes follow");
}

TEST(ParseIdx, RefusesOtherMagicNumbers) {
  is_refused(words({0x802, 1, 1}) + "x", "the magic number is 0x00000802, not 0x00000801 or 0x00000803");
  is_refused(words({0xd01, 1}) + "x", "0x00000d01");
  is_refused(words({0x1000801, 1}) + "x", "0x01000801");
  is_refused("\x1f\x8b\x08\x01", "0x1f8b0801");
}

TEST(ParseIdx, RefusesHugeShapesBeforeItAllocates) {
  is_refused(words({0x801, 0xffffffff}), "its shape is 4294967295, more than 1073741824 values");
  is_refused(words({0x803, 0xffffffff, 0xffffffff, 0xffffffff}), "more than 1073741824 values");
  // The product would be 0 in 64 bits, and 6 in 32.
  is_refused(words({0x803, 0x80000000, 0x80000000, 4}), "more than 1073741824 values");
  is_refused(words({0x803, 0x10001, 0x10000, 0xffff}) + "abcdef", "more than 1073741824 values");
}

TEST(ParseIdx, RefusesAShapeWithoutValues) {
  is_refused(words({0x801, 0}), "its shape is 0, without a value");
  is_refused(words({0x803, 5, 0, 5}), "its shape is 5 x 0 x 5, without a value");
}

TEST(ReadIdx, ReadsAFile) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "images", std::ios::binary) << kImages;
  EXPECT_THAT(read_idx(folder / "images").shape, ElementsAre(2, 1, 3));
}

TEST(ReadIdx, NamesTheFileThatItRefuses) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "images", std::ios::binary) << "not at all";
  for (const char* name : {"images", "none"}) {
    EXPECT_THAT([&] { read_idx(folder / name); },
                ThrowsMessage<UsageError>(StartsWith((folder / name).string() + ": ")));
  }
}

}  // namespace
}  // namespace lockstep::train
