#pragma once

#include <mutex>
#include <string>
#include <string_view>

namespace lockstep::transport {

/// Held around every call of MPI: it is initialised for one thread at a time.
std::unique_lock<std::mutex> lock_mpi();

/// Who this process is for MPI.
struct MpiPlace {
  int rank = 0;
  int world = 1;
};

/// Initialises MPI, once in a process. Throws UsageError if MPI cannot be called by several threads in turn,
/// and in a forked child of the process that did so. `rank` is for the text.
MpiPlace start_mpi(int rank);

/// All is well: MPI may be ended when the process does. Without it the process just ends, and the launcher
/// sees that as a failure.
void let_mpi_end();

/// Throws Error, with MPI's text, unless `code` is MPI_SUCCESS. The lock is held.
void require_mpi(int code, std::string_view what);
std::string mpi_error_text(int code);

}  // namespace lockstep::transport
