#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::cli {

/// The two calls of an optimizer that a training step makes.
struct DdpOptimizer {
  std::function<void()> zero_grad;
  std::function<void()> step;
};

/// By the benchmark's name: adam, sgd (momentum 0.9) or torch-adam. `stock`: LibTorch's own in every case.
DdpOptimizer make_ddp_optimizer(const std::string& name, double lr, const std::vector<at::Tensor>& parameters,
                                bool stock);

}  // namespace lockstep::cli
