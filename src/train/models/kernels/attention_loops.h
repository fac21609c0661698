#pragma once

#include <algorithm>
#include <limits>

#include "train/models/kernels/kernels.h"
#include "train/models/kernels/tile.h"

/// Causal attention of one head, whose rows are first copied to where they lie close together and are padded
/// with zeros to whole vectors: a few thousand numbers, which then stay in the nearest cache. Of the square
/// of weights only tiles that touch the triangle on and below the diagonal are computed.
namespace lockstep::train::kernels {

/// Sizes of a head with padding.
struct Padded {
  int64_t length, depth;
  explicit Padded(const Head& head) : length(padded(head.length)), depth(padded(head.depth)) {}
};

LOCKSTEP_KERNEL_INLINE float* take(float*& scratch, int64_t count) {
  float* const taken = scratch;
  scratch += count;
  return taken;
}

/// [T, D] rows `stride` apart -> [padded T, padded D], times `scale`.
LOCKSTEP_KERNEL_INLINE void pack(const Head& head, const float* from, int64_t stride, float scale,
                                 float* to) {
  const Padded wide(head);
  for (int64_t t = 0; t < head.length; ++t) {
    for (int64_t d = 0; d < head.depth; ++d) to[t * wide.depth + d] = from[t * stride + d] * scale;
    for (int64_t d = head.depth; d < wide.depth; ++d) to[t * wide.depth + d] = 0;
  }
  for (int64_t i = head.length * wide.depth; i < wide.length * wide.depth; ++i) to[i] = 0;
}

/// [T, D] rows `stride` apart -> [D, padded T].
LOCKSTEP_KERNEL_INLINE void pack_transposed(const Head& head, const float* from, float* to) {
  const Padded wide(head);
  for (int64_t d = 0; d < head.depth; ++d) {
    for (int64_t t = 0; t < head.length; ++t) to[d * wide.length + t] = from[t * head.stride + d];
    for (int64_t t = head.length; t < wide.length; ++t) to[d * wide.length + t] = 0;
  }
}

LOCKSTEP_KERNEL_INLINE void unpack(const Head& head, const float* from, float* to, int64_t stride) {
  const Padded wide(head);
  for (int64_t t = 0; t < head.length; ++t) {
    for (int64_t d = 0; d < head.depth; ++d) to[t * stride + d] = from[t * wide.depth + d];
  }
}

/// Columns up to and with the diagonal of rows [row, row + kRows), in whole vectors.
template <typename S>
LOCKSTEP_KERNEL_INLINE int64_t columns_of(int64_t row) {
  return (row + S::kRows + S::kLanes - 1) / S::kLanes * S::kLanes;
}

/// [padded T, padded T]: the tiles on and below the diagonal of `rows` times `columns`, [D, padded T].
template <typename S>
LOCKSTEP_KERNEL_INLINE void lower_products(const Head& head, const float* rows, const float* columns,
                                           float* to) {
  const Padded wide(head);
  for (int64_t row = 0; row < wide.length; row += S::kRows) {
    product_rows<S, S::kRows>({rows + row * wide.depth, wide.depth, 1}, columns, wide.length, 0, head.depth,
                              to + row * wide.length, wide.length, columns_of<S>(row));
  }
}

/// [padded T, padded D]: row t is the sum over s <= t of weights(t, s) values(s).
template <typename S>
LOCKSTEP_KERNEL_INLINE void sums_of_earlier(const Head& head, const float* weights, const float* values,
                                            float* to) {
  const Padded wide(head);
  for (int64_t row = 0; row < wide.length; row += S::kRows) {
    product_rows<S, S::kRows>({weights + row * wide.length, wide.length, 1}, values, wide.depth, 0,
                              std::min<int64_t>(row + S::kRows, head.length), to + row * wide.depth,
                              wide.depth, wide.depth);
  }
}

/// [padded T, padded D]: row s is the sum over t >= s of weights(t, s) values(t).
template <typename S>
LOCKSTEP_KERNEL_INLINE void sums_of_later(const Head& head, const float* weights, const float* values,
                                          float* to) {
  const Padded wide(head);
  for (int64_t row = 0; row < wide.length; row += S::kRows) {
    product_rows<S, S::kRows>({weights + row, 1, wide.length}, values, wide.depth, row, head.length,
                              to + row * wide.depth, wide.depth, wide.depth);
  }
}

/// Scores 0 to `last` of a row become weights, those behind it in the same vectors 0.
template <typename S>
LOCKSTEP_KERNEL_INLINE void softmax_row(float* row, int64_t last, int64_t columns) {
  using Floats = typename S::Floats;
  typename S::Ints lanes;
  count_lanes<S>(lanes);
  const Floats nothing = Floats{} - std::numeric_limits<float>::infinity();
  Floats highest = nothing;
  for (int64_t j = 0; j < columns; j += S::kLanes) {
    Floats scores;
    load(scores, row + j);
    scores = lanes > static_cast<int32_t>(last - j) ? nothing : scores;
    store(row + j, scores);
    highest = scores > highest ? scores : highest;
  }
  const float largest = largest_of<S>(highest);
  Floats sums = {};
  for (int64_t j = 0; j < columns; j += S::kLanes) {
    Floats weights;
    load(weights, row + j);
    weights -= largest;
    exponential<S>(weights);
    sums += weights;
    store(row + j, weights);
  }
  const float share = 1 / sum_of<S>(sums);
  for (int64_t j = 0; j < columns; j += S::kLanes) {
    Floats weights;
    load(weights, row + j);
    weights *= share;
    store(row + j, weights);
  }
}

/// Gradients of a row's weights become those of its scores: weight (gradient - sum of weight gradient).
template <typename S>
LOCKSTEP_KERNEL_INLINE void softmax_row_backward(const float* weights, float* gradients, float scale,
                                                 int64_t columns) {
  using Floats = typename S::Floats;
  Floats sums = {};
  for (int64_t j = 0; j < columns; j += S::kLanes) {
    Floats weight, gradient;
    load(weight, weights + j);
    load(gradient, gradients + j);
    sums += weight * gradient;
  }
  const float sum = sum_of<S>(sums);
  for (int64_t j = 0; j < columns; j += S::kLanes) {
    Floats weight, gradient;
    load(weight, weights + j);
    load(gradient, gradients + j);
    gradient = weight * (gradient - sum) * scale;
    store(gradients + j, gradient);
  }
}

/// `to` = `from` times what dropout keeps, on and below the diagonal; 0 behind it.
LOCKSTEP_KERNEL_INLINE void drop_row(const float* from, const float* kept, float* to, int64_t row,
                                     int64_t columns) {
  for (int64_t j = 0; j <= row; ++j) to[j] = from[j] * kept[j];
  for (int64_t j = row + 1; j < columns; ++j) to[j] = 0;
}

template <typename S>
LOCKSTEP_KERNEL_INLINE void attention_forward_loop(const Head& head, const AttentionInput& input,
                                                   float* weights, float* output, int64_t output_stride,
                                                   float* scratch) {
  const Padded wide(head);
  const int64_t rows = wide.length * wide.depth;
  float* const query = take(scratch, rows);
  float* const key = take(scratch, rows);
  float* const value = take(scratch, rows);
  float* const sums = take(scratch, rows);
  float* const dropped = take(scratch, wide.length * wide.length);
  pack(head, input.query, head.stride, head.scale, query);
  pack_transposed(head, input.key, key);
  pack(head, input.value, head.stride, 1, value);
  lower_products<S>(head, query, key, weights);
  for (int64_t t = 0; t < head.length; ++t) {
    const int64_t columns = columns_of<S>(t / S::kRows * S::kRows);
    softmax_row<S>(weights + t * wide.length, t, columns);
    if (input.kept != nullptr)
      drop_row(weights + t * wide.length, input.kept + t * head.length, dropped + t * wide.length, t,
               columns);
  }
  sums_of_earlier<S>(head, input.kept != nullptr ? dropped : weights, value, sums);
  unpack(head, sums, output, output_stride);
}

template <typename S>
LOCKSTEP_KERNEL_INLINE void attention_backward_loop(const Head& head, const AttentionInput& input,
                                                    const float* weights, const float* output_gradient,
                                                    int64_t output_stride,
                                                    const AttentionGradients& gradients, float* scratch) {
  const Padded wide(head);
  const int64_t rows = wide.length * wide.depth;
  float* const query = take(scratch, rows);
  float* const key = take(scratch, rows);
  float* const value = take(scratch, rows);
  float* const output = take(scratch, rows);
  float* const sums = take(scratch, rows);
  float* const scores = take(scratch, wide.length * wide.length);
  float* const dropped = take(scratch, wide.length * wide.length);
  pack(head, input.query, head.stride, 1, query);
  pack(head, input.key, head.stride, 1, key);
  pack_transposed(head, input.value, value);
  pack(head, output_gradient, output_stride, 1, output);
  lower_products<S>(head, output, value, scores);
  for (int64_t t = 0; t < head.length; ++t) {
    const int64_t columns = columns_of<S>(t / S::kRows * S::kRows);
    float* const row = scores + t * wide.length;
    if (input.kept != nullptr) {
      const float* const kept = input.kept + t * head.length;
      drop_row(row, kept, row, t, columns);
      drop_row(weights + t * wide.length, kept, dropped + t * wide.length, t, columns);
    }
    softmax_row_backward<S>(weights + t * wide.length, row, head.scale, columns);
  }
  sums_of_earlier<S>(head, scores, key, sums);
  unpack(head, sums, gradients.query, head.stride);
  sums_of_later<S>(head, scores, query, sums);
  unpack(head, sums, gradients.key, head.stride);
  sums_of_later<S>(head, input.kept != nullptr ? dropped : weights, output, sums);
  unpack(head, sums, gradients.value, head.stride);
}

}  // namespace lockstep::train::kernels
