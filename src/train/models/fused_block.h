#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "train/models/kernels/block.h"

namespace lockstep::train {

using BlockTensors = std::array<at::Tensor, kernels::kBlockWeights>;

struct BlockOptions {
  int64_t heads;
  double eps;
  double hidden_dropout, attention_dropout;  ///< 0: nothing is dropped.
};

/// Whether fused_block() takes these: float32 on the CPU, widths that are whole numbers of vectors.
bool can_fuse(const at::Tensor& x, const BlockTensors& weights);

/// A block of the transformer, [B, T, C] -> [B, T, C], as one function with its own gradient, on each sample
/// from its first product to its last. Dropout draws from torch's default generator as at::dropout would, in
/// the order: attention's weights, attention's part, the MLP's part. Throws UsageError if a gradient of its
/// gradient is asked for.
at::Tensor fused_block(const at::Tensor& x, const BlockTensors& weights, const BlockOptions& options);

}  // namespace lockstep::train
