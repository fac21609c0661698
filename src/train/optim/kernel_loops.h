#pragma once

#include <cmath>
#include <cstdint>

#include "train/optim/kernels.h"

/// The loops of the kernels, in plain C++. They are inlined into functions that say which instructions the
/// compiler may use, and vectorised there. Products and sums must not be contracted: -ffp-contract=off.
namespace lockstep::train::optim {

#define LOCKSTEP_OPTIM_INLINE [[gnu::always_inline]] inline

// Arrays do not overlap.
#ifdef __clang__
#define LOCKSTEP_OPTIM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_OPTIM_INDEPENDENT _Pragma("GCC ivdep")
#endif

/// NaN wins, as in LibTorch's.
template <typename T>
LOCKSTEP_OPTIM_INLINE T larger(T a, T b) {
  return a == a && !(a >= b) ? b : a;
}

template <bool decays, bool keeps_max, typename T>
LOCKSTEP_OPTIM_INLINE void adam_elements(const AdamArrays<T>& arrays, const AdamRule<T>& rule, int64_t begin,
                                         int64_t end) {
  T* const parameter = arrays.parameter;
  const T* const gradient = arrays.gradient;
  T* const exp_avg = arrays.exp_avg;
  T* const exp_avg_sq = arrays.exp_avg_sq;
  T* const max_exp_avg_sq = arrays.max_exp_avg_sq;
  const AdamRule<T> r = rule;  // a copy that the stores below cannot change
  LOCKSTEP_OPTIM_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) {
    const T p = parameter[i] * r.shrink;
    T g = gradient[i];
    if constexpr (decays) g = g + r.weight_decay * p;
    const T m = r.beta1 * exp_avg[i] + r.one_minus_beta1 * g;
    T v = r.beta2 * exp_avg_sq[i] + r.one_minus_beta2 * (g * g);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    if constexpr (keeps_max) max_exp_avg_sq[i] = v = larger(max_exp_avg_sq[i], v);
    parameter[i] = p - r.step_size * m / (r.root_scale * std::sqrt(v) + r.eps);
  }
}

template <typename T>
LOCKSTEP_OPTIM_INLINE void adam_loop(const AdamArrays<T>& arrays, const AdamRule<T>& rule, int64_t begin,
                                     int64_t end) {
  const bool decays = rule.weight_decay != 0;  // 0 p is not 0 for an infinite p
  if (arrays.max_exp_avg_sq != nullptr) {
    if (decays) return adam_elements<true, true>(arrays, rule, begin, end);
    return adam_elements<false, true>(arrays, rule, begin, end);
  }
  if (decays) return adam_elements<true, false>(arrays, rule, begin, end);
  adam_elements<false, false>(arrays, rule, begin, end);
}

template <bool decays, bool has_momentum, bool nesterov, bool first, typename T>
LOCKSTEP_OPTIM_INLINE void sgd_elements(const SgdArrays<T>& arrays, const SgdRule<T>& rule, int64_t begin,
                                        int64_t end) {
  T* const parameter = arrays.parameter;
  const T* const gradient = arrays.gradient;
  T* const buffer = arrays.momentum_buffer;
  const SgdRule<T> r = rule;
  LOCKSTEP_OPTIM_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) {
    const T p = parameter[i];
    T d = gradient[i];
    if constexpr (decays) d = d + r.weight_decay * p;
    if constexpr (has_momentum) {
      T b = d;
      if constexpr (!first) b = r.momentum * buffer[i] + r.one_minus_dampening * d;
      buffer[i] = b;
      d = nesterov ? d + r.momentum * b : b;
    }
    parameter[i] = p - r.lr * d;
  }
}

template <bool decays, typename T>
LOCKSTEP_OPTIM_INLINE void sgd_with(const SgdArrays<T>& arrays, const SgdRule<T>& rule, int64_t begin,
                                    int64_t end) {
  if (arrays.momentum_buffer == nullptr) {
    return sgd_elements<decays, false, false, false>(arrays, rule, begin, end);
  }
  if (rule.first) {
    if (rule.nesterov) return sgd_elements<decays, true, true, true>(arrays, rule, begin, end);
    return sgd_elements<decays, true, false, true>(arrays, rule, begin, end);
  }
  if (rule.nesterov) return sgd_elements<decays, true, true, false>(arrays, rule, begin, end);
  sgd_elements<decays, true, false, false>(arrays, rule, begin, end);
}

template <typename T>
LOCKSTEP_OPTIM_INLINE void sgd_loop(const SgdArrays<T>& arrays, const SgdRule<T>& rule, int64_t begin,
                                    int64_t end) {
  if (rule.weight_decay != 0) return sgd_with<true>(arrays, rule, begin, end);
  sgd_with<false>(arrays, rule, begin, end);
}

/// Sixteen running sums, so that the additions need not wait for each other; they are folded in halves.
template <typename T>
LOCKSTEP_OPTIM_INLINE double square_loop(const T* values, int64_t begin, int64_t end) {
  constexpr int64_t kLanes = 16;
  double sums[kLanes] = {};
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i + lane < end; ++lane) {
    const auto value = static_cast<double>(values[i + lane]);
    sums[lane] += value * value;
  }
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

}  // namespace lockstep::train::optim
