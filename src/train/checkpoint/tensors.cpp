#include "train/checkpoint/tensors.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/adamw.h>

#include <cstring>
#include <regex>

#include "lockstep/error.h"
#include "train/checkpoint/files.h"
#include "train/optim/param_state.h"

namespace lockstep::train {

namespace {

TensorType type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
      return TensorType::kBool;
    case at::kByte:
      return TensorType::kU8;
    case at::kChar:
      return TensorType::kI8;
    case at::kShort:
      return TensorType::kI16;
    case at::kInt:
      return TensorType::kI32;
    case at::kLong:
      return TensorType::kI64;
    case at::kHalf:
      return TensorType::kF16;
    case at::kBFloat16:
      return TensorType::kBF16;
    case at::kFloat:
      return TensorType::kF32;
    case at::kDouble:
      return TensorType::kF64;
    default:
      throw UsageError(fmt::format("a tensor of type {} cannot be saved", toString(tensor.scalar_type())));
  }
}

std::string form(TensorType type, at::IntArrayRef shape) {
  return fmt::format("{} [{}]", name(type), fmt::join(shape, ", "));
}

/// How many files of a kind there are, by the number in their names; 0 if there is none.
int count_files(const std::filesystem::path& checkpoint, const std::string& kind) {
  const std::regex pattern(kind + "-[0-9]{5}-of-([0-9]{5})\\.safetensors");
  std::smatch match;
  for (const auto& name : names_in(checkpoint)) {
    if (std::regex_match(name, match, pattern)) return std::stoi(match[1]);
  }
  return 0;
}

}  // namespace

void TensorsToSave::add(const std::string& name, const at::Tensor& tensor) {
  const auto& kept = kept_.emplace_back(tensor.detach().contiguous());
  data_.push_back({.name = name,
                   .type = type_of(kept),
                   .shape = kept.sizes().vec(),
                   .bytes = {static_cast<const std::byte*>(kept.data_ptr()), kept.nbytes()}});
}

std::string tensor_file_name(const std::string& kind, int file, int files) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", kind, file + 1, files);
}

SavedTensors::SavedTensors(const std::filesystem::path& checkpoint, const std::string& kind)
    : checkpoint_(checkpoint) {
  const int files = count_files(checkpoint, kind);
  if (files == 0) {
    throw Error(fmt::format("{} has no {}-*.safetensors; hint: name a checkpoint of a run",
                            checkpoint.string(), kind));
  }
  for (int file = 0; file < files; ++file) {
    const auto& opened = files_.emplace_back(checkpoint / tensor_file_name(kind, file, files));
    for (const auto& tensor : opened.header().tensors) {
      if (file_of_.emplace(tensor.name, file).second) continue;
      throw Error(fmt::format("{}: {} is in two files", checkpoint.string(), tensor.name));
    }
  }
}

void SavedTensors::copy_to(const std::string& wanted, const at::Tensor& tensor) const {
  const auto found = file_of_.find(wanted);
  if (found == file_of_.end()) {
    throw Error(fmt::format("{}: no tensor {}, which the model has; hint: it is of another model",
                            checkpoint_.string(), wanted));
  }
  const SafetensorsFile& file = files_[found->second];
  const TensorEntry& entry = *file.find(wanted);
  if (entry.type != type_of(tensor) || tensor.sizes() != at::IntArrayRef(entry.shape)) {
    throw Error(fmt::format("{}: {} is {}, the model's is {}; hint: it is of another model",
                            checkpoint_.string(), wanted, form(entry.type, entry.shape),
                            form(type_of(tensor), tensor.sizes())));
  }
  const auto bytes = file.bytes(entry);
  TORCH_CHECK(tensor.is_contiguous());
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  if (tensor.is_floating_point() && !at::isfinite(tensor).all().item<bool>()) {
    throw Error(fmt::format("{}: {} holds values that are not finite; hint: use an earlier checkpoint",
                            checkpoint_.string(), wanted));
  }
}

std::vector<std::string> SavedTensors::names() const {
  std::vector<std::string> all;
  for (const auto& [name, file] : file_of_) all.push_back(name);
  return all;
}

TensorsToSave weights_to_save(const Weights& weights) {
  TensorsToSave saved;
  for (const auto& [name, weight] : weights) {
    if (!weight.is_copy) saved.add(name, weight.tensor);
  }
  return saved;
}

void load_weights(const Weights& weights, const SavedTensors& saved) {
  for (const auto& [name, weight] : weights) saved.copy_to(name, weight.tensor);
}

TensorsToSave adam_state(torch::optim::Optimizer& optimizer, const Weights& weights) {
  TensorsToSave saved;
  auto& states = optimizer.state();
  for (const auto& [name, weight] : weights) {
    const auto found = states.find(optim::state_key<std::decay_t<decltype(states)>>(weight.tensor));
    if (weight.is_copy || found == states.end()) continue;  // buffers have none
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(*found->second);
    saved.add(name + ".exp_avg", state.exp_avg());
    saved.add(name + ".exp_avg_sq", state.exp_avg_sq());
    saved.add(name + ".step", at::scalar_tensor(state.step(), at::kLong));
  }
  return saved;
}

void load_adam_state(torch::optim::Optimizer& optimizer, const Weights& weights, const SavedTensors& saved) {
  auto& states = optimizer.state();
  for (const auto& [name, weight] : weights) {
    if (!weight.tensor.requires_grad()) continue;
    auto state = std::make_unique<torch::optim::AdamWParamState>();
    const auto step = at::scalar_tensor(0, at::kLong);
    state->exp_avg(at::zeros_like(weight.tensor));
    state->exp_avg_sq(at::zeros_like(weight.tensor));
    saved.copy_to(name + ".exp_avg", state->exp_avg());
    saved.copy_to(name + ".exp_avg_sq", state->exp_avg_sq());
    saved.copy_to(name + ".step", step);
    state->step(step.item<int64_t>());
    states[optim::state_key<std::decay_t<decltype(states)>>(weight.tensor)] = std::move(state);
  }
}

}  // namespace lockstep::train
