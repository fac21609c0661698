#include "train/models/mlp_layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "parallel/default_generator.h"
#include "parallel/seed.h"

namespace lockstep::train {

namespace {

torch::nn::Linear make_layer(int64_t dim, uint64_t seed, int64_t index) {
  torch::nn::Linear layer(dim, dim);
  const at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(
      parallel::derive_seed(seed, parallel::Stream::kWeights, static_cast<uint64_t>(index)));
  const double bound = std::sqrt(6.0 / static_cast<double>(dim));
  layer->weight.uniform_(-bound, bound, generator);
  layer->bias.zero_();
  return layer;
}

}  // namespace

torch::nn::Sequential make_mlp_layers(int64_t dim, int64_t begin, int64_t end, int64_t depth, uint64_t seed) {
  const parallel::KeepDefaultGenerator keep;  // Linear's constructor draws weights of its own from it
  torch::nn::Sequential layers;
  for (int64_t index = begin; index < end; ++index) {
    layers->push_back(fmt::format("{}", index), make_layer(dim, seed, index));
    if (index + 1 < depth) layers->push_back(fmt::format("relu{}", index), torch::nn::ReLU());
  }
  return layers;
}

uint64_t default_seed() {
  return at::detail::getDefaultCPUGenerator().current_seed();
}

}  // namespace lockstep::train
