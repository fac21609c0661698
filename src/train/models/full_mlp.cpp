#include "lockstep/train/models/full_mlp.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/mse_loss.h>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <mutex>

#include "lockstep/error.h"
#include "train/seed.h"

namespace lockstep {

namespace {

/// Puts the state of torch's default generator back: Linear's constructor draws weights of its own from it.
class KeepDefaultGenerator {
 public:
  KeepDefaultGenerator() {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeepDefaultGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeepDefaultGenerator(const KeepDefaultGenerator&) = delete;
  KeepDefaultGenerator& operator=(const KeepDefaultGenerator&) = delete;

 private:
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  at::Tensor state_;
};

torch::nn::Linear make_layer(int64_t dim, uint64_t seed, int64_t index) {
  torch::nn::Linear layer(dim, dim);
  const at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(
      train::derive_seed(seed, train::Stream::kWeights, static_cast<uint64_t>(index)));
  const double bound = std::sqrt(6.0 / static_cast<double>(dim));
  layer->weight.uniform_(-bound, bound, generator);
  layer->bias.zero_();
  return layer;
}

}  // namespace

FullMLPImpl::FullMLPImpl(int64_t dim, int64_t depth)
    : FullMLPImpl(dim, depth, at::detail::getDefaultCPUGenerator().current_seed()) {}

FullMLPImpl::FullMLPImpl(int64_t dim, int64_t depth, uint64_t seed) : dim_(dim), depth_(depth) {
  if (dim < 1 || depth < 1) {
    throw UsageError(fmt::format("FullMLP: dim {} and depth {}; hint: both must be at least 1", dim, depth));
  }
  const KeepDefaultGenerator keep;
  torch::nn::Sequential layers;
  for (int64_t index = 0; index < depth; ++index) {
    if (index > 0) layers->push_back(fmt::format("relu{}", index - 1), torch::nn::ReLU());
    layers->push_back(fmt::format("{}", index), make_layer(dim, seed, index));
  }
  layers_ = register_module("layers", layers.ptr());
}

torch::Tensor FullMLPImpl::forward(const torch::Tensor& input, const torch::Tensor& target) {
  if (input.dim() < 1 || input.size(-1) != dim_) {
    throw UsageError(fmt::format("FullMLP: the input has shape [{}], expected [..., {}]",
                                 fmt::join(input.sizes(), ", "), dim_));
  }
  const torch::Tensor output = layers_->forward(input);
  if (!target.defined()) return output;
  if (target.sizes() != output.sizes()) {
    throw UsageError(fmt::format("FullMLP: the target has shape [{}], the output [{}]",
                                 fmt::join(target.sizes(), ", "), fmt::join(output.sizes(), ", ")));
  }
  return at::mse_loss(output, target);
}

}  // namespace lockstep
