#pragma once

#include "train/models/kernels/simd.h"

namespace lockstep::train::kernels {

/// A matrix whose element (i, k) is at data[i * row + k * column].
struct Matrix {
  const float* data;
  int64_t row;
  int64_t column;
};

/// kRows rows by kVectors vectors of C = A B, over k in [begin, end); rows of B and C are contiguous. What is
/// added up stays in registers, so that each number of B is loaded once for kRows rows.
template <typename S, int kVectors>
LOCKSTEP_KERNEL_INLINE void product_tile(const Matrix& a, const float* b, int64_t b_row, int64_t begin,
                                         int64_t end, float* c, int64_t c_row) {
  using Floats = typename S::Floats;
  Floats sums[S::kRows][kVectors] = {};
  for (int64_t k = begin; k < end; ++k) {
    Floats right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) load(right[v], b + k * b_row + v * S::kLanes);
    const float* const left = a.data + k * a.column;
#pragma GCC unroll 16
    for (int64_t i = 0; i < S::kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] += left[i * a.row] * right[v];
    }
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < S::kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c + i * c_row + v * S::kLanes, sums[i][v]);
  }
}

/// The same for `columns` columns, a multiple of kLanes.
template <typename S>
LOCKSTEP_KERNEL_INLINE void product_rows(const Matrix& a, const float* b, int64_t b_row, int64_t begin,
                                         int64_t end, float* c, int64_t c_row, int64_t columns) {
  int64_t column = 0;
  for (; column + 2 * S::kLanes <= columns; column += 2 * S::kLanes)
    product_tile<S, 2>(a, b + column, b_row, begin, end, c + column, c_row);
  if (column < columns) product_tile<S, 1>(a, b + column, b_row, begin, end, c + column, c_row);
}

}  // namespace lockstep::train::kernels
