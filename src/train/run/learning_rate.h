#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace lockstep::train {

/// The learning rate of a step, from 0: rises to `peak` in `warmup` steps, then falls along a cosine to a
/// tenth of it at step `steps`.
inline double learning_rate(double peak, int64_t warmup, int64_t steps, int64_t step) {
  constexpr double kLast = 0.1;
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const auto falling = static_cast<double>(std::max<int64_t>(1, steps - warmup));
  const double done = std::min(1.0, static_cast<double>(step - warmup) / falling);
  return peak * (kLast + (1 - kLast) * 0.5 * (1 + std::cos(std::numbers::pi * done)));
}

}  // namespace lockstep::train
