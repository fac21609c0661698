#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::launch {

/// What Lockstep asks of the kernel; a reason why not, or "" where it works. Containers may forbid each.
struct KernelFeatures {
  std::string pidfd_problem;      ///< Noticing a rank's death at once.
  std::string subreaper_problem;  ///< Leaving no grandchild behind.
  std::string memfd_problem;      ///< Memory shared between ranks.
};

/// Tries each one, leaving nothing behind.
KernelFeatures kernel_features();

/// This process's limits; empty for unlimited.
struct Limits {
  std::optional<uint64_t> address_space_bytes;  ///< `ulimit -v`
  std::optional<uint64_t> locked_memory_bytes;  ///< `ulimit -l`
  std::optional<uint64_t> file_bytes;           ///< `ulimit -f`; memory that ranks share counts as a file.
  std::optional<uint64_t> open_files;           ///< `ulimit -n`
  std::optional<uint64_t> open_files_hard;      ///< What `ulimit -n` may be raised to.
};

Limits limits();

}  // namespace lockstep::launch
