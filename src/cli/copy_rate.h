#pragma once

#include <cstdint>
#include <vector>

#include "launch/cores.h"

namespace lockstep::cli {

/// Bytes copied in a second, from memory to memory (each is read once and written once).
struct CopyRate {
  double one_core = 0;
  double all_cores = 0;
};

/// Copies blocks that together exceed `cache_bytes` twice over, on one core and then on each of `cores` at
/// once; the best of several rounds. About 0.3 s. Uses at most `memory_bytes`.
CopyRate measure_copy_rate(const std::vector<launch::Core>& cores, uint64_t cache_bytes,
                           uint64_t memory_bytes);

/// The same with a block of `block_bytes` on each core, whatever caches it fits.
CopyRate measure_copy_rate_of(const std::vector<launch::Core>& cores, uint64_t block_bytes);

}  // namespace lockstep::cli
