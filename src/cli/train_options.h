#pragma once

#include "cli/json_output.h"
#include "train/baseline.h"

namespace lockstep::cli {

/// The flags of `lockstep train`.
struct TrainOptions {
  train::BaselineOptions baseline;
  JsonOutput json;
};

}  // namespace lockstep::cli
