#pragma once

#include <cstddef>

namespace lockstep {

/// Memory of this process that the other ranks of its host can map.
struct SharedMemoryUse {
  std::size_t used_bytes = 0;       ///< In tensors, and what Communicator::allocate gave.
  std::size_t peak_used_bytes = 0;  ///< The most so far, or since restart_shared_memory_peak().
  std::size_t held_bytes = 0;       ///< Taken from the system: used, or kept for the next who asks.
};
SharedMemoryUse shared_memory_use();
void restart_shared_memory_peak();

/// Gives kept memory back to the system. It happens by itself when this process frees something while memory
/// is short, or asks for more than is left.
void trim_shared_memory();

}  // namespace lockstep
