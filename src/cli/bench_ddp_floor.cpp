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

/// To the mean of what it was and its gradient: it neither grows nor vanishes.
float moved(float value, float gradient) {
  return 0.5F * (value + gradient);
}

void step_with_one(float* weight, float* moment, const float* gradient, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    moment[i] = moved(moment[i], gradient[i]);
    weight[i] = moved(weight[i], gradient[i]);
  }
}

void step_with_two(float* weight, float* first, float* second, const float* gradient, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    first[i] = moved(first[i], gradient[i]);
    second[i] = moved(second[i], gradient[i]);
    weight[i] = moved(weight[i], gradient[i]);
  }
}

}  // namespace

DdpStepFloor::DdpStepFloor(const MlpSizes& model, const std::string& optimizer)
    : moments_(optimizer == "sgd" ? 1 : 2) {
  const c10::InferenceMode no_autograd;
  const int64_t dim = model.dim;
  // Of the size that keeps products from layer to layer from vanishing: denormal numbers are slow.
  const double size = 1 / std::sqrt(static_cast<double>(dim));
  activations_.push_back(at::randn({model.batch, dim}));
  for (int64_t layer = 0; layer < model.depth; ++layer) {
    weights_.push_back(at::randn({dim, dim}).mul_(size));
    biases_.push_back(at::randn({dim}));
    weight_gradients_.push_back(at::randn({dim, dim}));
    for (auto& moment : moments_) moment.push_back(at::randn({dim, dim}));
    activations_.push_back(at::randn({model.batch, dim}));
  }
  gradient_ = at::randn({model.batch, dim});
}

double DdpStepFloor::forward_ms(int64_t steps) {
  const c10::InferenceMode no_autograd;
  return mean_ms(steps, [this] {
    for (size_t k = 0; k < weights_.size(); ++k)
      at::addmm_out(activations_[k + 1], biases_[k], activations_[k], weights_[k].t());
  });
}

double DdpStepFloor::backward_ms(int64_t steps) {
  const c10::InferenceMode no_autograd;
  return mean_ms(steps, [this] {
    for (size_t k = weights_.size(); k-- > 0;) {
      at::mm_out(weight_gradients_[k], gradient_.t(), activations_[k]);
      // Nobody asks for the gradient of the first layer's input.
      if (k > 0) at::mm_out(activations_[k + 1], gradient_, weights_[k]);
    }
  });
}

double DdpStepFloor::optimizer_ms(int64_t steps) {
  return mean_ms(steps, [this] {
    for (size_t k = 0; k < weights_.size(); ++k) {
      auto* const weight = weights_[k].data_ptr<float>();
      const auto* const gradient = weight_gradients_[k].data_ptr<float>();
      auto* const first = moments_[0][k].data_ptr<float>();
      if (moments_.size() == 1) {
        step_with_one(weight, first, gradient, weights_[k].numel());
      } else {
        step_with_two(weight, first, moments_[1][k].data_ptr<float>(), gradient, weights_[k].numel());
      }
    }
  });
}

}  // namespace lockstep::cli
