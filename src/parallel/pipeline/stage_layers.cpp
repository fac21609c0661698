#include "parallel/pipeline/stage_layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/container/sequential.h>

#include <mutex>
#include <set>
#include <sstream>
#include <typeinfo>

#include "parallel/ddp/agreement.h"
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

/// Null for any other module, also for one derived from Sequential: its forward is its own.
torch::nn::SequentialImpl* as_sequential(const AnyModel& model) {
  const torch::nn::Module& module = *model;
  return typeid(module) == typeid(torch::nn::SequentialImpl) ? model->as<torch::nn::SequentialImpl>()
                                                             : nullptr;
}

/// Of the layers of a Sequential; none for any other module.
std::vector<std::string> layer_names(const AnyModel& model) {
  const auto* const layers = as_sequential(model);
  return layers == nullptr ? std::vector<std::string>() : layers->named_children().keys();
}

}  // namespace

StageLayers::StageLayers(const AnyModel& model, uint64_t salt) : model_(model), salt_(salt) {
  for (const auto& name : layer_names(model)) names_.push_back(hash_of(name));
}

at::Tensor StageLayers::forward(const at::Tensor& input, uint64_t seed_of_all) const {
  const uint64_t seed =
      salt_ == 0 ? seed_of_all : parallel::derive_seed(seed_of_all, parallel::Stream::kDropout, salt_);
  if (names_.empty()) {
    seed_default_generator(seed);
    return model_.forward(input);
  }
  at::Tensor x = input;
  size_t index = 0;
  for (auto& layer : *as_sequential(model_)) {
    seed_default_generator(parallel::derive_seed(seed, parallel::Stream::kDropout, names_[index++]));
    x = layer.forward(x);
  }
  return x;
}

std::vector<StageLayers> tell_apart(const std::vector<AnyModel>& chunks, Communicator& comm) {
  std::string lines;
  for (const auto& chunk : chunks) {
    for (const auto& name : layer_names(chunk)) lines += name + '\n';
  }
  bool are_apart = true;
  std::set<std::string> known;
  for (const auto& text : ddp::gather_texts(comm, lines)) {
    std::istringstream stream(text);
    for (std::string name; std::getline(stream, name);) are_apart = known.insert(name).second && are_apart;
  }
  std::vector<StageLayers> stages;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const uint64_t number = static_cast<uint64_t>(comm.rank()) + i * static_cast<uint64_t>(comm.world_size());
    const bool has_own_names = are_apart && !layer_names(chunks[i]).empty();
    stages.emplace_back(chunks[i], has_own_names ? 0 : number + 1);
  }
  return stages;
}

}  // namespace lockstep::pipeline
