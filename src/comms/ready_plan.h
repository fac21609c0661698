#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/plan/collectives.h"

namespace lockstep::comms {

/// A plan with one rank's own steps, ready to be run.
struct ReadyPlan {
  plan::Plan plan;
  uint8_t algorithm = 0;  ///< Its number among all algorithms.
  std::vector<plan::Step> steps;
  bool one_sided = false;  ///< It has flags, or reaches into others' memory.
};

/// The plans that a rank has run so far.
class PlanCache {
 public:
  PlanCache(int rank, int world, int ranks_per_node)
      : rank_(rank), world_(world), ranks_per_node_(ranks_per_node) {}

  /// Throws UsageError for an algorithm that the collective does not have.
  const ReadyPlan& find(plan::Collective collective, std::string_view algorithm, int root);

 private:
  const int rank_;
  const int world_;
  const int ranks_per_node_;
  struct Entry {
    plan::Collective collective;
    std::string algorithm;
    int root;
    std::unique_ptr<ReadyPlan> ready;
  };
  std::vector<Entry> entries_;  ///< Few: a program uses a handful.
};

}  // namespace lockstep::comms
