#pragma once

#include <cstdint>

/// Inner loops of the transformer, on plain memory: no LibTorch here.
namespace lockstep::train::kernels {

/// One head of one sample. Queries, keys, values and their gradients are rows of `depth` numbers, `stride`
/// numbers apart.
struct Head {
  int64_t length;  ///< T: rows.
  int64_t depth;   ///< D: columns.
  int64_t stride;
  float scale;  ///< Of the scores: 1 / sqrt(D).
};

/// Rows of attention's weights are a whole number of this many numbers long, and so of vectors.
inline constexpr int64_t kPadding = 8;
constexpr int64_t padded(int64_t length) {
  return (length + kPadding - 1) / kPadding * kPadding;
}

/// Floats that the attention's functions need to work in.
constexpr int64_t attention_scratch(int64_t length, int64_t depth) {
  return 8 * padded(length) * padded(depth) + 2 * padded(length) * padded(length);
}

struct AttentionInput {
  const float *query, *key, *value;
  const float* kept;  ///< [T, T]: what dropout multiplies a weight by; null: nothing is dropped.
};

struct AttentionGradients {
  float *query, *key, *value;
};

/// Sets of kernels differ in rounding.
struct Kernels {
  const char* name;
  /// Row t of `output`, [T, D] in rows `output_stride` apart: the mean of rows 0 to t of value, by
  /// `weights` = softmax(scale query key^T), dropped. `weights`, [padded(T), padded(T)], gets them before
  /// dropping; behind the diagonal they are 0 as far as the backward function looks, and not set further on.
  void (*attention_forward)(const Head& head, const AttentionInput& input, float* weights, float* output,
                            int64_t output_stride, float* scratch);
  /// The gradients of the three by that of the output, whose rows lie as those of the output.
  void (*attention_backward)(const Head& head, const AttentionInput& input, const float* weights,
                             const float* output_gradient, int64_t output_stride,
                             const AttentionGradients& gradients, float* scratch);
};

/// For any CPU that the compiler makes code for.
const Kernels& portable_kernels();
/// For CPUs with AVX2 and FMA; null if this one, or this build, is not of that kind.
const Kernels* avx2_kernels();

/// The fastest that this CPU and this build have.
const Kernels& kernels();

}  // namespace lockstep::train::kernels
