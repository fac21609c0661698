#pragma once

#include <cstdint>
#include <span>

#include "04_walls/memory.h"

namespace lab::walls {

/// What the allocator of a real, small training run counted, in bytes.
struct Measured {
  std::int64_t parameters = 0;
  Memory model;
  std::int64_t activations = 0;  ///< What forward left for backward.
  std::int64_t peak = 0;         ///< The most that was there at once, backward's own buffers among it.
};

/// Trains a multilayer perceptron on the CPU for a few steps of Adam, in plain C++: widths[0] inputs, linear
/// layers with bias to each of the following widths, a ReLU between them, mean squared error.
Measured train_and_measure(std::span<const std::int64_t> widths, std::int64_t batch, int steps);

}  // namespace lab::walls
