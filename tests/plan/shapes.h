#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/plan/collectives.h"

namespace lockstep::plan {

/// Every algorithm's plans for one world: all roots where a root matters, several sizes of nodes where those
/// do.
inline std::vector<Plan> plans_of(const Algorithm& algorithm, int world) {
  const bool has_root =
      algorithm.collective == Collective::kBroadcast || algorithm.collective == Collective::kReduce ||
      algorithm.collective == Collective::kScatter || algorithm.collective == Collective::kGather;
  std::vector<Plan> plans;
  for (int root = 0; root < (has_root ? world : 1); ++root) {
    for (int per_node = 1; per_node <= (algorithm.name == "hierarchical" ? world : 1); ++per_node) {
      plans.push_back(algorithm.make({.world = world, .root = root, .ranks_per_node = per_node}));
    }
  }
  return plans;
}

inline std::string test_name(const Algorithm& algorithm) {
  std::string name = std::string(plan::name(algorithm.collective)) + "_" + std::string(algorithm.name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace lockstep::plan
