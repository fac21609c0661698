#pragma once

#include <string>

namespace lockstep::cli {

/// The word of `lockstep-torch bench-train-rank`.
struct TrainBenchRankOptions {
  std::string folder;  ///< Of the benchmark: the run's folder, pipes, weights and batches.
};

}  // namespace lockstep::cli
