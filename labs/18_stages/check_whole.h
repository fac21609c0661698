#pragma once

#include <string>
#include <vector>

#include "18_stages/check.h"

namespace lab::stages {

/// What one step trains on: numbers between -1 and 1.
struct Batch {
  torch::Tensor input, target;
};
/// As many as there are steps, of the shape that is in force.
std::vector<Batch> make_batches(const Checker& checker, uint64_t salt, int steps);

/// A step of the whole model in one process: what all ways to cut it are compared with.
struct WholeStep {
  float loss = 0;
  std::vector<torch::Tensor> weights;      ///< Before the step: weight and bias of each layer.
  std::vector<torch::Tensor> gradients;    ///< Of them.
  std::vector<torch::Tensor> activations;  ///< What comes into each layer, and at last the output.
  std::vector<torch::Tensor> wanted;       ///< The gradients of these.
};
std::vector<WholeStep> train_whole(int layers, const std::vector<Batch>& batches);

/// Copies: weight and bias of each layer, and their gradients, undefined where there is none.
std::vector<torch::Tensor> weights_of(const std::vector<Layer>& layers);
std::vector<torch::Tensor> gradients_of(const std::vector<Layer>& layers);
/// The optimizer's step; gradients are undefined after it.
void learn(std::vector<Layer>& layers);

/// In which the heap may grow by some hundred bytes each: an allocator is not exact.
constexpr int kGrowthSteps = 60;

bool is_close(const torch::Tensor& found, const torch::Tensor& expected);
/// How `found` differs from `expected`, for people.
std::string difference(const torch::Tensor& found, const torch::Tensor& expected);

/// The stages' layers are the model, each once, in order and evenly.
void expect_partition(Checker& checker, int layers, const std::vector<LayerRange>& ranges);
/// The gradients of a stage whose first layer is `first`, from its last layer to its first. `missing` is what
/// an undefined one means.
void expect_gradients(Checker& checker, const std::vector<torch::Tensor>& found, const WholeStep& whole,
                      int first, const std::string& where, const Failure& missing);

/// layers_of and make_stage.
void check_layers(const Seam& seam, Checker& checker);
/// stage_forward and stage_backward, without any messages.
void check_by_hand(const Seam& seam, Checker& checker);

}  // namespace lab::stages
