#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::train {

/// Attention of each position to itself and those before it. `qkv` is [B, T, 3C]: queries, keys and values
/// of all heads, a head having C / heads neighbouring columns of each. Returns [B, T, C]. Weights are dropped
/// with probability `dropout`, by torch's default generator.
///
/// Of float32 it is one function with its own gradient: each head reads its columns where they are, computes
/// the triangle that counts, and writes its columns of the result. Throws UsageError if a gradient of its
/// gradient is asked for.
at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads, double dropout);

/// The same by LibTorch's operations: the formula as it is written, for any floating type.
at::Tensor naive_causal_attention(const at::Tensor& qkv, int64_t heads, double dropout);

}  // namespace lockstep::train
