#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comms/communicator.h"

namespace lockstep {

/// What data parallel training asks of a communicator, under the names that courses on it use. Thin: every
/// call is one of the Communicator's. Tensors must be contiguous and on the CPU.
class DataParallelComms {
 public:
  explicit DataParallelComms(Communicator comm) : comm_(std::move(comm)) {}

  int rank() const { return comm_.rank(); }
  int world_size() const { return comm_.world_size(); }
  Communicator& communicator() { return comm_; }

  /// The mean over all ranks, in place; returns the same tensor.
  at::Tensor all_reduce_mean(at::Tensor tensor);
  void barrier();
  /// Every rank's tensor becomes the root's; returns the same tensor.
  at::Tensor broadcast(at::Tensor tensor, int root = 0);
  /// The sum, at the root; what the others hold afterwards is undefined. Returns the same tensor.
  at::Tensor reduce(at::Tensor tensor, int root = 0, ReduceOp op = ReduceOp::kSum);
  /// The root gives a tensor for each rank, all of one shape; `output` of that shape becomes this rank's.
  at::Tensor scatter(at::Tensor output, const std::vector<at::Tensor>& inputs = {}, int root = 0);
  /// At the root: a tensor from each rank, in rank order; nothing elsewhere.
  std::vector<at::Tensor> gather(const at::Tensor& input, int root = 0);
  /// A tensor from each rank, in rank order.
  std::vector<at::Tensor> all_gather(const at::Tensor& input);

 private:
  Communicator comm_;
};

}  // namespace lockstep
