#pragma once

#include <cstdint>

/// Inner loops of the transformer, on plain memory: no LibTorch here.
namespace lockstep::train::kernels {

/// Widths of rows are whole numbers of these, and so of vectors.
inline constexpr int64_t kPadding = 16;
constexpr int64_t padded(int64_t length) {
  return (length + kPadding - 1) / kPadding * kPadding;
}

/// C = A B, or C += A B: [m, k] times [k, n], which is padded. Element (i, k) of A is at
/// a[i * a_row + k * a_column]; rows of B and C are contiguous.
struct Product {
  int64_t m, n, k;
  const float* a;
  int64_t a_row, a_column;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
  const float* bias = nullptr;  ///< [n], added to each row of C; null: none.
  bool adds = false;            ///< To what C holds.
};

/// Rows of [rows, width] numbers, contiguous; width is padded.
struct Rows {
  int64_t count;
  int64_t width;
};

/// LayerNorm's weights, and the mean and 1 / deviation of each row.
struct Norm {
  const float *weight, *bias;
  float eps;
  float* statistics;  ///< [rows, 2]
};

struct NormGradients {
  float *weight, *bias;  ///< Added to.
};

/// One head of one sample. Queries, keys, values and their gradients are rows of `depth` numbers, `stride`
/// numbers apart.
struct Head {
  int64_t length;  ///< T: rows.
  int64_t depth;   ///< D: columns.
  int64_t stride;
  float scale;  ///< Of the scores: 1 / sqrt(D).
};

/// Floats that the attention's functions need to work in.
constexpr int64_t attention_scratch(int64_t length, int64_t depth) {
  return 5 * padded(length) * padded(depth) + 2 * padded(length) * padded(length);
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

  void (*product)(const Product& product);

  /// `to` = (x - mean) / deviation * weight + bias, of each row; sets the statistics.
  void (*norm_forward)(const Rows& rows, const Norm& norm, const float* x, float* to);
  /// `to` += the gradient of x, by that of the result. Reads the statistics.
  void (*norm_backward)(const Rows& rows, const Norm& norm, const float* x, const float* gradient, float* to,
                        const NormGradients& gradients);

  /// `to` = x P(X <= x) of a standard normal X: GELU without approximation, to float's precision.
  void (*gelu_forward)(int64_t count, const float* x, float* to);
  /// The same, and `gradient`, of the result, becomes that of x.
  void (*gelu_backward)(int64_t count, const float* x, float* to, float* gradient);

  /// Adds the sum of each column to `sums`, [width].
  void (*add_columns)(const Rows& rows, const float* x, float* sums);

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
/// For CPUs with AVX-512; the same.
const Kernels* avx512_kernels();

/// The fastest that this CPU and this build have.
const Kernels& kernels();

}  // namespace lockstep::train::kernels
