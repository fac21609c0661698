#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep::launch {

struct Memory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  ///< What new programs can have without swapping, as the kernel estimates.
};

/// Of this machine. `root` is where the file tree starts, for tests.
Memory memory(const std::filesystem::path& root = "/");

/// A level of data cache.
struct Cache {
  int level = 0;
  uint64_t bytes = 0;
  int cores = 0;  ///< That share one of them.
};

/// Of this machine, nearest to the core first; empty where it does not tell.
std::vector<Cache> caches();

/// A file system that lives in memory.
struct MemoryDisk {
  bool found = false;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};

/// The size of /dev/shm, which Open MPI and Python's data loaders use; Lockstep itself does not.
MemoryDisk dev_shm(const std::filesystem::path& path = "/dev/shm");

}  // namespace lockstep::launch
