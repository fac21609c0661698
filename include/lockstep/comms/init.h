#pragma once

#include <chrono>
#include <string>

#include "lockstep/comms/communicator.h"
#include "lockstep/launch/identity.h"

namespace lockstep {

struct InitOptions {
  /// "shm", "gloo" or "mpi"; "": LOCKSTEP_ENGINE, or what fits where the ranks are.
  std::string engine = "";
  /// How long a call waits while nothing moves, and how long ranks wait for each other to come; above 0.
  /// std::chrono::milliseconds::max() is as good as forever.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  /// On the engine `shm`: use_shared_allocator(), in programs that include <lockstep/lockstep.h>.
  /// LOCKSTEP_SHARED_ALLOCATOR=0 switches it off as well.
  bool shared_allocator = true;
};

/// Joins the job that this process is a rank of, as its launcher's environment says (`lockstep run`,
/// torchrun, mpirun, srun); alone, it is a world of one. Call it once in a process. When the last copy of the
/// communicator goes, the rank has left; rank 0 then waits for the others a little.
Communicator init_distributed(const InitOptions& options = {});

/// The same for an identity of one's own.
Communicator init_distributed(const Identity& identity, const InitOptions& options);

namespace comms {

/// Says what init_distributed() calls when ranks share memory and tensors shall too: see shared_allocator.h.
bool call_on_shared_memory(void (*use_allocator)(bool));

}  // namespace comms

}  // namespace lockstep
