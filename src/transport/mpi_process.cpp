#include "transport/mpi_process.h"

#define OMPI_SKIP_MPICXX 1
#include <fmt/format.h>
#include <mpi.h>

#include <atomic>
#include <cstdlib>
#include <optional>

#include "lockstep/error.h"
#include "transport/owner.h"

namespace lockstep::transport {

namespace {

std::atomic<bool> may_end = false;
std::optional<Owner> owner;  ///< Once Lockstep has initialised MPI.

/// At exit. Not in a forked child, and not after a failure: MPI_Finalize waits for all ranks.
void end_mpi() {
  if (may_end && owner->is_here()) MPI_Finalize();
}

}  // namespace

std::unique_lock<std::mutex> lock_mpi() {
  static std::mutex mutex;
  return std::unique_lock(mutex);
}

MpiPlace start_mpi(int rank) {
  if (owner) owner->require("init_distributed", rank);  // in a forked child MPI would wait for ever
  const auto lock = lock_mpi();
  int initialised = 0;
  MPI_Initialized(&initialised);
  int provided = MPI_THREAD_SINGLE;
  if (initialised == 0) {
    require_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    owner.emplace();
    std::atexit(end_mpi);
  } else {
    MPI_Query_thread(&provided);
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    throw UsageError(
        "engine mpi: MPI was initialised for one thread alone; hint: call MPI_Init_thread with "
        "MPI_THREAD_SERIALIZED, or "
        "leave it to Lockstep");
  }
  MpiPlace place;
  MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &place.world);
  return place;
}

void let_mpi_end() {
  may_end = true;
}

void require_mpi(int code, std::string_view what) {
  if (code != MPI_SUCCESS) throw Error(fmt::format("engine mpi: {}: {}", what, mpi_error_text(code)));
}

std::string mpi_error_text(int code) {
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<size_t>(length));
  return text;
}

}  // namespace lockstep::transport
