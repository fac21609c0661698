#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "lockstep/comms/pipeline_comms.h"
#include "lockstep/comms/tensors.h"
#include "lockstep/error.h"

namespace lockstep {

namespace {

int require(const std::optional<int>& rank, const PipelineComms& comms, const char* call, const char* which) {
  if (rank) return *rank;
  throw UsageError(fmt::format("{} on rank {} of {}: there is no {} stage; hint: ask is_first() or is_last()",
                               call, comms.rank(), comms.world_size(), which));
}
int require_next(const PipelineComms& comms, const char* call) {
  return require(comms.get_next_rank(), comms, call, "next");
}
int require_prev(const PipelineComms& comms, const char* call) {
  return require(comms.get_prev_rank(), comms, call, "previous");
}

}  // namespace

std::optional<int> PipelineComms::get_next_rank() const {
  return is_last() ? std::nullopt : std::optional(rank() + 1);
}
std::optional<int> PipelineComms::get_prev_rank() const {
  return is_first() ? std::nullopt : std::optional(rank() - 1);
}

void PipelineComms::send_tensor(const at::Tensor& tensor, int to) {
  comm_.send(tensor.detach().contiguous(), to);
}
at::Tensor PipelineComms::recv_tensor(at::IntArrayRef shape, int from, at::ScalarType type) {
  return lockstep::recv_tensor(comm_, shape, from, type);
}
TensorWork PipelineComms::isend_tensor(const at::Tensor& tensor, int to) {
  const at::Tensor kept = tensor.detach().contiguous();
  return {kept, comm_.isend(kept, to)};
}
TensorWork PipelineComms::irecv_tensor(at::IntArrayRef shape, int from, at::ScalarType type) {
  const at::Tensor room = at::empty(shape, type);
  return {room, comm_.irecv(room, from)};
}

void PipelineComms::send_forward(const at::Tensor& activation) {
  send_tensor(activation, require_next(*this, "send_forward"));
}
at::Tensor PipelineComms::recv_forward(at::IntArrayRef shape, at::ScalarType type) {
  return recv_tensor(shape, require_prev(*this, "recv_forward"), type);
}
void PipelineComms::send_backward(const at::Tensor& gradient) {
  send_tensor(gradient, require_prev(*this, "send_backward"));
}
at::Tensor PipelineComms::recv_backward(at::IntArrayRef shape, at::ScalarType type) {
  return recv_tensor(shape, require_next(*this, "recv_backward"), type);
}

TensorWork PipelineComms::isend_forward(const at::Tensor& activation) {
  return isend_tensor(activation, require_next(*this, "isend_forward"));
}
TensorWork PipelineComms::irecv_forward(at::IntArrayRef shape, at::ScalarType type) {
  return irecv_tensor(shape, require_prev(*this, "irecv_forward"), type);
}
TensorWork PipelineComms::isend_backward(const at::Tensor& gradient) {
  return isend_tensor(gradient, require_prev(*this, "isend_backward"));
}
TensorWork PipelineComms::irecv_backward(at::IntArrayRef shape, at::ScalarType type) {
  return irecv_tensor(shape, require_next(*this, "irecv_backward"), type);
}

}  // namespace lockstep
