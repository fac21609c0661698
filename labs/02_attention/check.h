#pragma once

#include <torch/torch.h>

#include "lab/checker.h"

namespace lab::attention {

/// What the lesson asks for.
struct Seam {
  torch::Tensor (*causal_attention)(const torch::Tensor& query, const torch::Tensor& key,
                                    const torch::Tensor& value);
  torch::Tensor (*next_token_loss)(const torch::Tensor& logits, const torch::Tensor& tokens);
  double (*perplexity)(double loss);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::attention
