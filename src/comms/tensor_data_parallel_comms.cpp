#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include "lockstep/comms/data_parallel_comms.h"
#include "lockstep/comms/tensors.h"
#include "lockstep/error.h"

namespace lockstep {

namespace {

/// Room for one such tensor of every rank, rank by rank.
at::Tensor room_for(const at::Tensor& one, int world) {
  std::vector<int64_t> shape = one.sizes().vec();
  shape.insert(shape.begin(), world);
  return at::empty(shape, one.options());
}

}  // namespace

at::Tensor DataParallelComms::all_reduce_mean(at::Tensor tensor) {
  comm_.all_reduce(tensor, ReduceOp::kMean);
  return tensor;
}

void DataParallelComms::barrier() {
  comm_.barrier();
}

at::Tensor DataParallelComms::broadcast(at::Tensor tensor, int root) {
  comm_.broadcast(tensor, root);
  return tensor;
}

at::Tensor DataParallelComms::reduce(at::Tensor tensor, int root, ReduceOp op) {
  comm_.reduce(tensor, root, op);
  return tensor;
}

at::Tensor DataParallelComms::scatter(at::Tensor output, const std::vector<at::Tensor>& inputs, int root) {
  if (rank() != root) {
    comm_.scatter(Buffer(), output, root);
    return output;
  }
  if (inputs.size() != static_cast<size_t>(world_size())) {
    throw UsageError(
        fmt::format("scatter on rank {}: {} tensors for {} ranks", rank(), inputs.size(), world_size()));
  }
  comm_.scatter(at::stack(inputs), output, root);
  return output;
}

std::vector<at::Tensor> DataParallelComms::gather(const at::Tensor& input, int root) {
  if (rank() != root) {
    comm_.gather(input, Buffer(), root);
    return {};
  }
  const at::Tensor all = room_for(input, world_size());
  comm_.gather(input, all, root);
  return all.unbind();
}

std::vector<at::Tensor> DataParallelComms::all_gather(const at::Tensor& input) {
  const at::Tensor all = room_for(input, world_size());
  comm_.all_gather(input, all);
  return all.unbind();
}

}  // namespace lockstep
