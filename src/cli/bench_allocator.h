#pragma once

#include "cli/json_output.h"

namespace lockstep::cli {

/// The flags of `lockstep bench allocator`.
struct BenchAllocatorOptions {
  int64_t dim = 1024;
  int64_t depth = 16;
  int64_t batch = 32;
  int64_t steps = 5;
  int64_t rounds = 5;
  JsonOutput json;
};

}  // namespace lockstep::cli
