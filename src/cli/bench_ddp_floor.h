#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cli/bench_ddp_request.h"

namespace lockstep::cli {

/// What a training step's matrix products take by themselves: the same shapes, on as many different matrices,
/// with all results in memory that is there already.
class GemmFloor {
 public:
  explicit GemmFloor(const DdpModel& model);

  /// Milliseconds of one step's, the mean of `steps`.
  double forward_ms(int64_t steps);
  double backward_ms(int64_t steps);

 private:
  std::vector<at::Tensor> weights_, biases_, weight_gradients_;
  std::vector<at::Tensor> activations_;  ///< The input and every layer's output.
  at::Tensor gradient_;
};

}  // namespace lockstep::cli
