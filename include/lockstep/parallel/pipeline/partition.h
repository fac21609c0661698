#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <vector>

#include "lockstep/comms/communicator.h"

namespace lockstep {

/// Where a list of layers is cut into stages: stage s has layers cuts[s] to cuts[s + 1], without the latter.
using Cuts = std::vector<int64_t>;

/// The same number of layers for each stage, as nearly as possible; the first stages have the remainder.
/// Throws UsageError unless there is a layer for each stage; so do the others.
Cuts cut_by_count(int64_t layers, int stages);

/// So that the heaviest stage is as light as can be. Exact: O(layers^2 * stages).
Cuts cut_by_weight(const std::vector<double>& weights, int stages);

/// By the number of parameters.
Cuts cut_by_parameters(const torch::nn::Sequential& model, int stages);

/// By the time that forward and backward of each layer take on this machine, the median of some rounds on
/// `input`. All ranks call it; what rank 0 measures counts for all.
Cuts cut_by_time(torch::nn::Sequential model, const at::Tensor& input, int stages, Communicator& comm);

/// One stage: the very layers of the model, under their names there, so that a stage's checkpoint is a part
/// of the model's.
torch::nn::Sequential take_stage(const torch::nn::Sequential& model, const Cuts& cuts, int stage);

}  // namespace lockstep
