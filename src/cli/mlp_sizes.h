#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::cli {

/// A FullMLP and the samples that a rank has of a batch.
struct MlpSizes {
  int64_t dim = 0;
  int64_t depth = 0;
  int64_t batch = 0;

  std::string name() const;         ///< As typed: mlp:128x16.
  int64_t parameter_count() const;  ///< Weights and biases.
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MlpSizes, dim, depth, batch)

/// Models and batches as typed: `mlp:128x16,mlp:512x16` with one batch for all, or one for each. Throws
/// UsageError by flag and value.
std::vector<MlpSizes> parse_mlps(const std::string& models, const std::string& batches);

/// What stands between commas.
std::vector<std::string> parts_of(const std::string& list);

}  // namespace lockstep::cli
