#pragma once

#include <cstdint>

#include "cli/json_output.h"

namespace lockstep::cli {

/// The flags of `lockstep train`.
struct TrainOptions {
  int64_t dim = 128;    ///< Width of every layer.
  int64_t depth = 16;   ///< Linear layers.
  int64_t batch = 64;   ///< Samples a step.
  int64_t steps = 200;  ///< Optimizer steps.
  double lr = 1e-3;     ///< Adam's learning rate.
  uint64_t seed = 0;    ///< Of weights and data.
  JsonOutput json;
};

}  // namespace lockstep::cli
