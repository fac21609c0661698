#include "comms/copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::comms {
namespace {

/// Copies between two blocks at these offsets, and says whether exactly these bytes arrived.
bool copies(size_t bytes, size_t from_offset, size_t to_offset) {
  std::vector<unsigned char> from(bytes + 256);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 251 + 1);
  std::vector<unsigned char> to(bytes + 256, 0);
  std::vector<unsigned char> expected = to;
  for (size_t i = 0; i < bytes; ++i) expected[to_offset + i] = from[from_offset + i];
  copy(to.data() + to_offset, from.data() + from_offset, bytes);
  return to == expected;
}

TEST(Copy, CopiesSmallBlocksOfEverySize) {
  for (size_t bytes = 0; bytes < 200; ++bytes) {
    for (const size_t offset : std::initializer_list<size_t>{0, 1, 63})
      ASSERT_TRUE(copies(bytes, offset, 2)) << bytes << " bytes at " << offset;
  }
}

TEST(Copy, CopiesLargeBlocksAtEveryAlignment) {
  for (const size_t bytes : {(size_t{1} << 22) - 1, size_t{1} << 22, (size_t{1} << 22) + 65}) {
    for (const size_t to_offset : std::initializer_list<size_t>{0, 1, 16, 63}) {
      for (const size_t from_offset : std::initializer_list<size_t>{0, 5}) {
        ASSERT_TRUE(copies(bytes, from_offset, to_offset))
            << bytes << " bytes from " << from_offset << " to " << to_offset;
      }
    }
  }
}

TEST(Copy, LeavesABlockThatIsCopiedOntoItself) {
  std::vector<unsigned char> block(1 << 21, 9);
  copy(block.data(), block.data(), block.size());
  EXPECT_EQ(block, std::vector<unsigned char>(1 << 21, 9));
}

}  // namespace
}  // namespace lockstep::comms
