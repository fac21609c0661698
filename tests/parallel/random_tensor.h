#pragma once

#include <torch/torch.h>

namespace lockstep::test {

/// By a generator of its own: threads share torch's.
inline torch::Tensor random(uint64_t seed, at::IntArrayRef shape) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

}  // namespace lockstep::test
