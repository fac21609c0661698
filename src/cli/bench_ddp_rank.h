#pragma once

#include <string>

namespace lockstep::cli {

/// The words of `lockstep-torch bench-ddp-rank`: a rank of one of the systems that are ours to write.
struct DdpRankOptions {
  std::string folder;  ///< Of the benchmark: request.json, pipes, weights and batches.
  std::string system;  ///< lockstep or libtorch.
};

}  // namespace lockstep::cli
