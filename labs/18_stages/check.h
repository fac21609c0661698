#pragma once

#include "lab/checker.h"
#include "lab/layers.h"

namespace lab::stages {

/// What the lesson asks for.
struct Seam {
  LayerRange (*layers_of)(int layers, int stage, int stages);
  Stage (*make_stage)(int layers, int stage, int stages);
  torch::Tensor (*stage_forward)(Stage& stage, const torch::Tensor& arrived);
  torch::Tensor (*stage_backward)(Stage& stage, const torch::Tensor& gradient);
  float (*naive_step)(Rank& rank, Stage& stage, const torch::Tensor& input, const torch::Tensor& target);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::stages
