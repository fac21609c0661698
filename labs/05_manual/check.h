#pragma once

#include <torch/torch.h>

#include "lab/checker.h"
#include "lockstep/train/models/full_mlp.h"

namespace lab::manual {

/// What the lesson asks for.
struct Seam {
  double (*manual_step)(lockstep::FullMLP& first, lockstep::FullMLP& second, const torch::Tensor& input,
                        const torch::Tensor& target, double lr);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::manual
