#pragma once

#include <memory>

#include "lockstep/launch/identity.h"
#include "transport/job.h"

namespace lockstep::transport {

/// The engine `mpi`: ranks that mpirun, or srun with PMIx, has started; messages go by MPI. Between hosts
/// rank 0 makes the control plane's token and MPI passes it on. Throws UsageError if it was not built, if MPI
/// was not the launcher, or if the launcher and MPI do not agree who this rank is; TimeoutError naming who
/// did not come by the deadline.
///
/// Initialises MPI, unless the program has; then it is also ended with the process, unless the job has
/// failed: MPI would wait for all ranks. The program may call MPI itself while no collective runs.
std::unique_ptr<Job> connect_mpi(const Identity& identity, Control::Clock::time_point deadline);

}  // namespace lockstep::transport
