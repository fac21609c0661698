#pragma once

#include <cstddef>

namespace lockstep::comms {

/// Copies of so many bytes and more go past the caches where the CPU can: beyond the L2 cache that saves a
/// third of the memory traffic, below it the reader would miss the data.
constexpr std::size_t kLeastStreamedBytes = std::size_t{2} << 20;

/// memcpy for what ranks hand to each other; `to` may be equal to `from`.
void copy(void* to, const void* from, std::size_t bytes);

}  // namespace lockstep::comms
