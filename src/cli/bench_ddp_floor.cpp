#include "cli/bench_ddp_floor.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <cmath>

namespace lockstep::cli {

namespace {

template <typename Work>
double mean_ms(int64_t steps, const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < steps; ++i) work();
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / static_cast<double>(steps);
}

}  // namespace

GemmFloor::GemmFloor(const DdpModel& model) {
  const c10::InferenceMode no_autograd;
  const int64_t dim = model.dim;
  // Of the size that keeps products from layer to layer from vanishing: denormal numbers are slow.
  const double size = 1 / std::sqrt(static_cast<double>(dim));
  activations_.push_back(at::randn({model.batch, dim}));
  for (int64_t layer = 0; layer < model.depth; ++layer) {
    weights_.push_back(at::randn({dim, dim}).mul_(size));
    biases_.push_back(at::randn({dim}));
    weight_gradients_.push_back(at::randn({dim, dim}));
    activations_.push_back(at::randn({model.batch, dim}));
  }
  gradient_ = at::randn({model.batch, dim});
}

double GemmFloor::forward_ms(int64_t steps) {
  const c10::InferenceMode no_autograd;
  return mean_ms(steps, [this] {
    for (size_t k = 0; k < weights_.size(); ++k)
      at::addmm_out(activations_[k + 1], biases_[k], activations_[k], weights_[k].t());
  });
}

double GemmFloor::backward_ms(int64_t steps) {
  const c10::InferenceMode no_autograd;
  return mean_ms(steps, [this] {
    for (size_t k = weights_.size(); k-- > 0;) {
      at::mm_out(weight_gradients_[k], gradient_.t(), activations_[k]);
      // Nobody asks for the gradient of the first layer's input.
      if (k > 0) at::mm_out(activations_[k + 1], gradient_, weights_[k]);
    }
  });
}

}  // namespace lockstep::cli
