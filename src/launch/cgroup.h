#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace lockstep::launch {

/// What this process's control groups allow it; empty where they set no limit. Containers and SLURM set them.
struct CgroupLimits {
  std::optional<double> cpus;            ///< Processor time per time: 1.5 is one and a half cores.
  std::optional<uint64_t> memory_bytes;  ///< Memory of all processes of the group.
  std::optional<uint64_t>
      memory_left_bytes;  ///< Of that, what is not in use; cached files do not count as used.
};

/// Reads the limits of the group and of all its parents, version 1 and 2; the tightest count. `root` is where
/// the file tree starts, for tests.
CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace lockstep::launch
