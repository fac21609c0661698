#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "lockstep/comms/communicator.h"

namespace lockstep {

/// A tensor that is on its way: kept until it has been sent, or to be looked at once it has come.
struct TensorWork {
  at::Tensor tensor;
  Work work;
  /// Until it is over; returns the tensor.
  at::Tensor wait() const {
    work.wait();
    return tensor;
  }
};

/// What pipeline parallel training asks of a communicator, under the names that courses on it use: rank r
/// holds stage r. Thin: every call is one of the Communicator's. Messages between two ranks keep their order.
/// A shape and a type that are received must be those that were sent. Tensors are on the CPU; one that is not
/// contiguous is copied.
class PipelineComms {
 public:
  explicit PipelineComms(Communicator comm) : comm_(std::move(comm)) {}

  int rank() const { return comm_.rank(); }
  int world_size() const { return comm_.world_size(); }
  Communicator& communicator() { return comm_; }
  bool is_first() const { return rank() == 0; }
  bool is_last() const { return rank() + 1 == world_size(); }

  /// The rank of the next stage; none after the last.
  std::optional<int> get_next_rank() const;
  /// The rank of the stage before; none before the first.
  std::optional<int> get_prev_rank() const;

  void send_tensor(const at::Tensor& tensor, int to);
  at::Tensor recv_tensor(at::IntArrayRef shape, int from, at::ScalarType type = at::kFloat);
  TensorWork isend_tensor(const at::Tensor& tensor, int to);
  TensorWork irecv_tensor(at::IntArrayRef shape, int from, at::ScalarType type = at::kFloat);

  /// An activation, to the next stage. This and the following throw UsageError where there is no such stage.
  void send_forward(const at::Tensor& activation);
  /// An activation, from the stage before.
  at::Tensor recv_forward(at::IntArrayRef shape, at::ScalarType type = at::kFloat);
  /// The gradient of an activation, to the stage before.
  void send_backward(const at::Tensor& gradient);
  /// The gradient of an activation, from the next stage.
  at::Tensor recv_backward(at::IntArrayRef shape, at::ScalarType type = at::kFloat);

  TensorWork isend_forward(const at::Tensor& activation);
  TensorWork irecv_forward(at::IntArrayRef shape, at::ScalarType type = at::kFloat);
  TensorWork isend_backward(const at::Tensor& gradient);
  TensorWork irecv_backward(at::IntArrayRef shape, at::ScalarType type = at::kFloat);

 private:
  Communicator comm_;
};

}  // namespace lockstep
