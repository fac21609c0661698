#pragma once

#include "train/models/kernels/kernels.h"
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
template <typename S, int kRows, int kVectors>
LOCKSTEP_KERNEL_INLINE void product_tile(const Matrix& a, const float* b, int64_t b_row, int64_t begin,
                                         int64_t end, float* c, int64_t c_row, const float* bias, bool adds) {
  using Floats = typename S::Floats;
  Floats sums[kRows][kVectors] = {};
  for (int64_t k = begin; k < end; ++k) {
    Floats right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) load(right[v], b + k * b_row + v * S::kLanes);
    const float* const left = a.data + k * a.column;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] += left[i * a.row] * right[v];
    }
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* const to = c + i * c_row + v * S::kLanes;
      Floats more;
      if (bias != nullptr) load(more, bias + v * S::kLanes), sums[i][v] += more;
      if (adds) load(more, to), sums[i][v] += more;
      store(to, sums[i][v]);
    }
  }
}

/// The same for `columns` columns, a multiple of kLanes.
template <typename S, int kRows>
LOCKSTEP_KERNEL_INLINE void product_rows(const Matrix& a, const float* b, int64_t b_row, int64_t begin,
                                         int64_t end, float* c, int64_t c_row, int64_t columns) {
  int64_t column = 0;
  for (; column + 2 * S::kLanes <= columns; column += 2 * S::kLanes)
    product_tile<S, kRows, 2>(a, b + column, b_row, begin, end, c + column, c_row, nullptr, false);
  if (column < columns)
    product_tile<S, kRows, 1>(a, b + column, b_row, begin, end, c + column, c_row, nullptr, false);
}

template <typename S, int kVectors>
LOCKSTEP_KERNEL_INLINE void product_panel(const Product& p, int64_t column) {
  const auto tile = [&]<int kRows>(int64_t row) __attribute__((always_inline)) {
    product_tile<S, kRows, kVectors>({p.a + row * p.a_row, p.a_row, p.a_column}, p.b + column, p.b_row, 0,
                                     p.k, p.c + row * p.c_row + column, p.c_row,
                                     p.bias == nullptr ? nullptr : p.bias + column, p.adds);
  };
  int64_t row = 0;
  for (; row + S::kRows <= p.m; row += S::kRows) tile.template operator()<S::kRows>(row);
  for (; row < p.m; ++row) tile.template operator()<1>(row);
}

/// Panel by panel of B's columns, each of which stays in a near cache while the rows of A pass.
template <typename S>
LOCKSTEP_KERNEL_INLINE void product_loop(const Product& p) {
  int64_t column = 0;
  constexpr int64_t kWide = S::kVectors * S::kLanes;
  for (; column + kWide <= p.n; column += kWide) product_panel<S, S::kVectors>(p, column);
  for (; column < p.n; column += S::kLanes) product_panel<S, 1>(p, column);
}

}  // namespace lockstep::train::kernels
