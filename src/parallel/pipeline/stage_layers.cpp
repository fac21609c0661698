#include "parallel/pipeline/stage_layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/container/sequential.h>

#include <mutex>

#include "parallel/seed.h"

namespace lockstep::pipeline {

namespace {

uint64_t hash_of(const std::string& name) {
  uint64_t hash = 0;
  for (const char letter : name) {
    hash = parallel::derive_seed(hash, parallel::Stream::kDropout, static_cast<unsigned char>(letter));
  }
  return hash;
}

void seed_default_generator(uint64_t seed) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

StageLayers::StageLayers(const AnyModel& model) : model_(model) {
  if (const auto* const layers = model_->as<torch::nn::SequentialImpl>()) {
    for (const auto& name : layers->named_children().keys()) names_.push_back(hash_of(name));
  }
}

at::Tensor StageLayers::forward(const at::Tensor& input, uint64_t seed) const {
  const bool draws = model_->is_training();
  if (names_.empty()) {
    if (draws) seed_default_generator(seed);
    return model_.forward(input);
  }
  at::Tensor x = input;
  size_t index = 0;
  for (auto& layer : *model_->as<torch::nn::SequentialImpl>()) {
    if (draws)
      seed_default_generator(parallel::derive_seed(seed, parallel::Stream::kDropout, names_[index++]));
    x = layer.forward(x);
  }
  return x;
}

}  // namespace lockstep::pipeline
