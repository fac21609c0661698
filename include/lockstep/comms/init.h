#pragma once

#include <chrono>
#include <string>

#include "lockstep/comms/communicator.h"
#include "lockstep/launch/identity.h"

namespace lockstep {

struct InitOptions {
  /// "shm", "gloo" or "mpi"; "": LOCKSTEP_ENGINE, or what fits where the ranks are.
  std::string engine = "";
  /// How long a call waits while nothing moves, and how long ranks wait for each other to come.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
};

/// Joins the job that this process is a rank of, as its launcher's environment says (`lockstep run`,
/// torchrun, mpirun, srun); alone, it is a world of one. Call it once in a process. When the last copy of the
/// communicator goes, the rank has left; rank 0 then waits for the others a little.
Communicator init_distributed(const InitOptions& options = {});

/// The same for an identity of one's own.
Communicator init_distributed(const Identity& identity, const InitOptions& options);

}  // namespace lockstep
