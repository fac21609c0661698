#pragma once

#include <string>

#include "cli/json_output.h"

namespace lockstep::cli {

/// The flags of `lockstep generate`.
struct GenerateFlags {
  std::string from;
  std::string prompt = "";
  int64_t length = 200;
  double temperature = 0.8;
  int64_t top_k = 0;
  int64_t seed = 0;
};

/// The flags of `lockstep eval`.
struct EvalOptions {
  std::string from;
  std::string data;
  JsonOutput json;
};

}  // namespace lockstep::cli
