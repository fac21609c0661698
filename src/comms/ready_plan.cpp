#include "comms/ready_plan.h"

namespace lockstep::comms {

const ReadyPlan& PlanCache::find(plan::Collective collective, std::string_view algorithm, int root) {
  for (const auto& entry : entries_) {
    if (entry.collective == collective && entry.root == root && entry.algorithm == algorithm)
      return *entry.ready;
  }
  auto ready = std::make_unique<ReadyPlan>();
  const plan::Algorithm& found = plan::find_algorithm(collective, algorithm);
  ready->plan = found.make({.world = world_, .root = root, .ranks_per_node = ranks_per_node_});
  ready->algorithm = static_cast<uint8_t>(&found - plan::algorithms().data());
  ready->steps = ready->plan.steps(rank_);
  ready->one_sided = found.one_sided;
  entries_.push_back({collective, std::string(algorithm), root, std::move(ready)});
  return *entries_.back().ready;
}

}  // namespace lockstep::comms
