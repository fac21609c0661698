#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <map>
#include <string>

namespace lockstep::train {

/// A weight of this rank's part of a model.
struct Weight {
  at::Tensor tensor;
  bool is_copy = false;  ///< Of a tied weight that another rank has under its own name, and saves.
};

/// By the names that checkpoints have for them.
using Weights = std::map<std::string, Weight>;

/// The parameters and buffers of a model or a stage of it. One that it holds twice, or under a tied name, has
/// the name of the original.
Weights named_weights(const torch::nn::Module& model);

/// Names under which a model holds a weight a second time, and the names of the originals.
const std::map<std::string, std::string>& tied_names();

}  // namespace lockstep::train
