#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comms/communicator.h"

namespace lockstep {

/// Lets a tensor stand wherever a Communicator takes a buffer: `comm.all_reduce(tensor)`. Throws UsageError,
/// naming shape and type, for a tensor that is not on the CPU, not contiguous, or of a type that collectives
/// do not know.
template <>
struct BufferOf<at::Tensor> {
  static Buffer of(const at::Tensor& tensor);
};

/// Sends a tensor; shape and type must be the receiver's.
void send_tensor(Communicator& comm, const at::Tensor& tensor, int to, int tag = 0);

/// Receives a tensor of this shape.
at::Tensor recv_tensor(Communicator& comm, at::IntArrayRef shape, int from, at::ScalarType type = at::kFloat,
                       int tag = 0);

}  // namespace lockstep
