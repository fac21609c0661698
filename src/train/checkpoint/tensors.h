#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/checkpoint/safetensors.h"
#include "train/run/weights.h"

namespace lockstep::train {

/// Tensors on their way into a file; they stay as long as this does.
class TensorsToSave {
 public:
  void add(const std::string& name, const at::Tensor& tensor);
  const std::vector<TensorData>& data() const { return data_; }

 private:
  std::vector<at::Tensor> kept_;
  std::vector<TensorData> data_;
};

/// All tensors of a checkpoint's files of one kind: `model` or `optimizer`.
class SavedTensors {
 public:
  /// Throws Error if a file is missing or broken, or a name is in two of them.
  SavedTensors(const std::filesystem::path& checkpoint, const std::string& kind);

  /// Copies it into `tensor`; throws Error, naming it and both forms, unless it is there in the same form,
  /// and for values that are not finite.
  void copy_to(const std::string& name, const at::Tensor& tensor) const;
  std::vector<std::string> names() const;

 private:
  std::filesystem::path checkpoint_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> file_of_;
};

/// "model-00001-of-00002.safetensors" for file 0 of 2.
std::string tensor_file_name(const std::string& kind, int file, int files);

/// What AdamW keeps of each weight, by the weight's name: `<name>.exp_avg`, `.exp_avg_sq`, `.step`.
TensorsToSave adam_state(torch::optim::Optimizer& optimizer, const Weights& weights);
/// Puts it back.
void load_adam_state(torch::optim::Optimizer& optimizer, const Weights& weights, const SavedTensors& saved);

/// The weights that this rank saves.
TensorsToSave weights_to_save(const Weights& weights);
void load_weights(const Weights& weights, const SavedTensors& saved);

}  // namespace lockstep::train
