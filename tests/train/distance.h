#pragma once

#include <torch/torch.h>

namespace lockstep::test {

/// The largest difference of two elements, taken in double.
inline double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max().item<double>();
}

}  // namespace lockstep::test
