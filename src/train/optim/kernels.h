#pragma once

#include <cstdint>

/// The inner loops of optimizers, on plain memory: no LibTorch here.
namespace lockstep::train::optim {

/// What one step of Adam does to each element, its numbers rounded to T as LibTorch rounds its scalars:
///
///     p = shrink p                                                    AdamW's weight decay, or 1
///     g = g + weight_decay p                                          Adam's, left out if 0
///     m = beta1 m + one_minus_beta1 g
///     v = beta2 v + one_minus_beta2 g g
///     x = max(x, v)                                                   with AMSGrad; else x stands for v
///     p = p - step_size m / (root_scale sqrt(x) + eps)
template <typename T>
struct AdamRule {
  T shrink;
  T weight_decay;
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T root_scale;  ///< 1 / sqrt(1 - beta2^t)
  T eps;
  T step_size;  ///< lr / (1 - beta1^t)
};

/// The memory of one parameter; no two arrays overlap.
template <typename T>
struct AdamArrays {
  T* parameter;
  const T* gradient;
  T* exp_avg;
  T* exp_avg_sq;
  T* max_exp_avg_sq;  ///< Null without AMSGrad.
};

/// What one step of SGD does to each element:
///
///     d = g + weight_decay p                                          left out if 0
///     b = first ? d : momentum b + one_minus_dampening d              left out if there is no b
///     d = nesterov ? d + momentum b : b
///     p = p - lr d
template <typename T>
struct SgdRule {
  T weight_decay;
  T momentum;
  T one_minus_dampening;
  T lr;
  bool nesterov;
  bool first;
};

template <typename T>
struct SgdArrays {
  T* parameter;
  const T* gradient;
  T* momentum_buffer;  ///< Null without momentum.
};

/// How many elements a sum of squares takes at once. A value is part of the bits of a norm.
inline constexpr int64_t kNormBlock = 4096;

/// Each function works on the elements [begin, end).
template <typename T>
struct KernelsOf {
  void (*adam)(const AdamArrays<T>& arrays, const AdamRule<T>& rule, int64_t begin, int64_t end);
  void (*sgd)(const SgdArrays<T>& arrays, const SgdRule<T>& rule, int64_t begin, int64_t end);
  /// Sums in double, in an order that depends on the number of elements alone.
  double (*sum_of_squares)(const T* values, int64_t begin, int64_t end);
};

/// Every set of these gives the same bits; only which one of several NaN survives is left open.
struct Kernels {
  KernelsOf<float> float32;
  KernelsOf<double> float64;

  template <typename T>
  const KernelsOf<T>& of() const {
    if constexpr (sizeof(T) == sizeof(float))
      return float32;
    else
      return float64;
  }
};

/// Plain C++, for any CPU.
const Kernels& portable_kernels();

/// For CPUs with AVX2; null if this one, or this build, is not of that kind.
const Kernels* avx2_kernels();

/// The fastest that this CPU and this build have.
const Kernels& kernels();

}  // namespace lockstep::train::optim
