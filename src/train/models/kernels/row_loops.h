#pragma once

#include <cmath>

#include "train/models/kernels/kernels.h"
#include "train/models/kernels/simd.h"

/// What a transformer does to rows beside products and attention.
namespace lockstep::train::kernels {

template <typename S>
LOCKSTEP_KERNEL_INLINE void norm_forward_loop(const Rows& rows, const Norm& norm, const float* x, float* to) {
  using Floats = typename S::Floats;
  const auto width = static_cast<float>(rows.width);
  for (int64_t row = 0; row < rows.count; ++row, x += rows.width, to += rows.width) {
    Floats sums = {}, squares = {}, value;
    for (int64_t i = 0; i < rows.width; i += S::kLanes) load(value, x + i), sums += value;
    const float mean = sum_of<S>(sums) / width;
    for (int64_t i = 0; i < rows.width; i += S::kLanes) {
      load(value, x + i);
      value -= mean;
      squares += value * value;
    }
    const float scale = 1 / std::sqrt(sum_of<S>(squares) / width + norm.eps);
    norm.statistics[2 * row] = mean;
    norm.statistics[2 * row + 1] = scale;
    for (int64_t i = 0; i < rows.width; i += S::kLanes) {
      Floats weight, bias;
      load(value, x + i);
      load(weight, norm.weight + i);
      load(bias, norm.bias + i);
      value = (value - mean) * scale * weight + bias;
      store(to + i, value);
    }
  }
}

/// With y = (x - mean) / deviation and h = weight gradient: (h - mean of h - y mean of h y) / deviation.
template <typename S>
LOCKSTEP_KERNEL_INLINE void norm_backward_loop(const Rows& rows, const Norm& norm, const float* x,
                                               const float* gradient, float* to,
                                               const NormGradients& gradients) {
  using Floats = typename S::Floats;
  const auto width = static_cast<float>(rows.width);
  for (int64_t row = 0; row < rows.count; ++row, x += rows.width, gradient += rows.width, to += rows.width) {
    const float mean = norm.statistics[2 * row], scale = norm.statistics[2 * row + 1];
    Floats sums = {}, products = {}, value, slope, weight, sum;
    for (int64_t i = 0; i < rows.width; i += S::kLanes) {
      load(value, x + i);
      load(slope, gradient + i);
      load(weight, norm.weight + i);
      value = (value - mean) * scale;
      load(sum, gradients.bias + i), sum += slope, store(gradients.bias + i, sum);
      load(sum, gradients.weight + i), sum += slope * value, store(gradients.weight + i, sum);
      slope *= weight;
      sums += slope;
      products += slope * value;
    }
    const float mean_slope = sum_of<S>(sums) / width, mean_product = sum_of<S>(products) / width;
    for (int64_t i = 0; i < rows.width; i += S::kLanes) {
      load(value, x + i);
      load(slope, gradient + i);
      load(weight, norm.weight + i);
      load(sum, to + i);
      value = (value - mean) * scale;
      sum += (slope * weight - mean_slope - value * mean_product) * scale;
      store(to + i, sum);
    }
  }
}

/// P(X <= x) and the density at x of a standard normal X. The error function is Hastings' approximation
/// (Abramowitz and Stegun, 7.1.26), whose error is below 1.5e-7.
template <typename S>
LOCKSTEP_KERNEL_INLINE void normal(const typename S::Floats& x, typename S::Floats& below,
                                   typename S::Floats& density) {
  using Floats = typename S::Floats;
  constexpr float kRootHalf = 0.70710678f, kRootTwoPi = 0.39894228f;
  const typename S::Ints is_negative = x < 0.0f;
  const Floats size = is_negative ? -x : x;
  Floats bell = x * x * -0.5f;
  exponential<S>(bell);
  const Floats t = 1.0f / (size * (0.3275911f * kRootHalf) + 1.0f);
  Floats p = t * 1.061405429f - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const Floats tail = p * t * bell * 0.5f;  // P(X > size)
  below = is_negative ? tail : 1.0f - tail;
  density = bell * kRootTwoPi;
}

template <typename S>
LOCKSTEP_KERNEL_INLINE void gelu_forward_loop(int64_t count, const float* x, float* to) {
  typename S::Floats value, below, density;
  for (int64_t i = 0; i < count; i += S::kLanes) {
    load(value, x + i);
    normal<S>(value, below, density);
    value *= below;
    store(to + i, value);
  }
}

template <typename S>
LOCKSTEP_KERNEL_INLINE void gelu_backward_loop(int64_t count, const float* x, float* to, float* gradient) {
  typename S::Floats value, below, density, slope;
  for (int64_t i = 0; i < count; i += S::kLanes) {
    load(value, x + i);
    load(slope, gradient + i);
    normal<S>(value, below, density);
    slope *= below + value * density;
    value *= below;
    store(to + i, value);
    store(gradient + i, slope);
  }
}

template <typename S>
LOCKSTEP_KERNEL_INLINE void add_columns_loop(const Rows& rows, const float* x, float* sums) {
  for (int64_t i = 0; i < rows.width; i += S::kLanes) {
    typename S::Floats sum, value;
    load(sum, sums + i);
    for (int64_t row = 0; row < rows.count; ++row) load(value, x + row * rows.width + i), sum += value;
    store(sums + i, sum);
  }
}

}  // namespace lockstep::train::kernels
