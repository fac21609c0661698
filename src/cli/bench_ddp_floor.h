#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "cli/bench_ddp_request.h"

namespace lockstep::cli {

/// What parts of a training step take at least, each by itself, on memory that is there already.
class DdpStepFloor {
 public:
  DdpStepFloor(const MlpSizes& model, const std::string& optimizer);

  /// Milliseconds, the mean of `steps`. Matrix products of the same shapes, on as many different matrices.
  double forward_ms(int64_t steps);
  double backward_ms(int64_t steps);
  /// The optimizer's loads and stores, with an addition each.
  double optimizer_ms(int64_t steps);

 private:
  std::vector<at::Tensor> weights_, biases_, weight_gradients_;
  std::vector<std::vector<at::Tensor>> moments_;  ///< By kind, then by layer: Adam has two, SGD one.
  std::vector<at::Tensor> activations_;           ///< The input and every layer's output.
  at::Tensor gradient_;
};

}  // namespace lockstep::cli
