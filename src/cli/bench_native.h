#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/comms/communicator.h"

namespace lockstep::cli {

/// Sums float32 over all ranks, in place.
using NativeSum = std::function<void(float* data, int64_t count)>;

/// The all-reduce of the library that the engine is built on, Gloo's or MPI_Allreduce, over connections of
/// its own. Called by all ranks of `comm`, which are on one host, and used by one thread at a time.
NativeSum make_native_sum(Communicator& comm);

}  // namespace lockstep::cli
