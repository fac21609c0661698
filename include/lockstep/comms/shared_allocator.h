#pragma once

#include "lockstep/comms/init.h"

namespace lockstep {

/// Lets LibTorch allocate every CPU tensor in memory that all ranks of the host share, so that collectives on
/// it copy nothing. Freed memory is kept for the next tensor of its size: no page faults after the first
/// steps. Tensors made before stay where they are.
///
/// init_distributed() does this on the engine `shm`, in programs that include <lockstep/lockstep.h>; switched
/// off by InitOptions::shared_allocator or LOCKSTEP_SHARED_ALLOCATOR=0. Called before the model is made, it
/// makes that shared too. `use_shared_allocator(false)` goes back to LibTorch's own.
///
/// What exceeds the memory limit is an Error. A forked child can use its parent's tensors as long as the
/// parent keeps them; it sees the parent's later changes until it writes to them itself. shared_memory_use()
/// counts.
void use_shared_allocator(bool use = true);

namespace comms {

/// The part without LibTorch cannot name LibTorch's allocator: whoever includes this header tells it.
inline const bool kTensorsAreShared = call_on_shared_memory(&use_shared_allocator);

}  // namespace comms

}  // namespace lockstep
