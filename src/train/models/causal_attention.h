#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::train {

/// Attention of each position to itself and those before it. `qkv` is [B, T, 3C]: queries, keys and values
/// of all heads, a head having C / heads neighbouring columns of each. Returns [B, T, C]. Weights are dropped
/// with probability `dropout`, by torch's default generator.
at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads, double dropout);

}  // namespace lockstep::train
