#pragma once

#include <cstdint>

namespace lockstep::cli {

/// Of the weights and batches of all benchmarks that train.
inline constexpr uint64_t kBenchSeed = 1;
/// Small: wide models diverge at 1e-3, and denormal numbers are slow.
inline constexpr double kBenchLearningRate = 1e-5;

}  // namespace lockstep::cli
