#pragma once

#include <torch/torch.h>

#include <vector>

#include "lab/checker.h"
#include "lockstep/train/models/full_mlp.h"

namespace lab::baseline {

/// What the lesson asks for.
struct Seam {
  double (*train_step)(lockstep::FullMLP& model, const torch::Tensor& input, const torch::Tensor& target,
                       double lr);
  std::vector<double> (*train)(lockstep::FullMLP& model, const torch::Tensor& inputs,
                               const torch::Tensor& targets, int64_t batch, double lr);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::baseline
