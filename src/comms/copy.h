#pragma once

#include <cstddef>

namespace lockstep::comms {

/// memcpy for what ranks hand to each other: large copies go past the caches, which costs half of the memory
/// traffic. What another thread or process does after it is ordered as after a memcpy.
void copy(void* to, const void* from, std::size_t bytes);

/// From this size on, `copy` goes past the caches. SIZE_MAX if this build never does.
std::size_t least_streamed_bytes();

/// Copies past the caches whatever the size; follow it by `finish_streams` before telling anyone. A plain
/// copy where the build has nothing better.
void stream(void* to, const void* from, std::size_t bytes);
void finish_streams();

}  // namespace lockstep::comms
