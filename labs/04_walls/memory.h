#pragma once

#include <cstdint>

namespace lab {

/// Bytes that a model takes while it is trained by Adam, without activations.
struct Memory {
  std::int64_t weights = 0;
  std::int64_t gradients = 0;  ///< One number for each weight.
  std::int64_t optimizer = 0;  ///< Adam keeps two more for each: a mean of the gradient, and of its square.

  std::int64_t total() const { return weights + gradients + optimizer; }
};

}  // namespace lab
