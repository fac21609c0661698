#pragma once

#include "cli/json_output.h"

namespace lockstep::cli {

/// The flags of `lockstep bench overlap`.
struct BenchOverlapOptions {
  int64_t dim = 1024;
  int64_t depth = 16;
  int64_t batch = 0;  ///< Of each rank; 0: where backward takes about as long as communication.
  double bucket_cap_mib = 4;
  int64_t rounds = 5;
  JsonOutput json;
};

}  // namespace lockstep::cli
