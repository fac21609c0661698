#include "launch/memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.h"

namespace lockstep::launch {
namespace {

TEST(Memory, IsReadFromTheKernelsTable) {
  const test::TemporaryFolder root;
  std::filesystem::create_directories(root / "proc");
  std::ofstream(root / "proc/meminfo")
      << "MemTotal:       2048 kB\nMemFree:        1 kB\nMemAvailable:   1024 kB\n"
      << "HugePages_Total:       0\nnonsense\n";
  const Memory found = memory(root.path());
  EXPECT_EQ(found.total_bytes, 2048U * 1024U);
  EXPECT_EQ(found.available_bytes, 1024U * 1024U);
}

TEST(Memory, OfThisMachineIsThere) {
  const Memory found = memory();
  EXPECT_GT(found.available_bytes, 0U);
  EXPECT_GT(found.total_bytes, found.available_bytes);
}

TEST(Caches, GrowWithTheirLevel) {
  uint64_t bytes = 0;
  int level = 0;
  for (const auto& cache : caches()) {
    EXPECT_GT(cache.level, level);
    EXPECT_GT(cache.bytes, bytes);
    EXPECT_GE(cache.cores, 1);
    level = cache.level;
    bytes = cache.bytes;
  }
}

TEST(MemoryDisk, TellsSizeAndAbsence) {
  const test::TemporaryFolder folder;
  const MemoryDisk disk = dev_shm(folder.path());
  EXPECT_TRUE(disk.found);
  EXPECT_GE(disk.total_bytes, disk.free_bytes);
  EXPECT_FALSE(dev_shm(folder / "absent").found);
}

}  // namespace
}  // namespace lockstep::launch
