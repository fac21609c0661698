#pragma once

#include <string>

namespace lockstep::cli {

/// The word of `lockstep-torch bench-pipeline-rank`.
struct PipelineRankOptions {
  std::string folder;  ///< Of the benchmark: request.json, pipes, weights and batch.
};

}  // namespace lockstep::cli
