#include "comms/ready_plan.h"

#include <algorithm>

namespace lockstep::comms {

namespace {

bool reaches_out(const plan::Step& step, int rank) {
  using plan::Kind;
  const auto elsewhere = [rank](const plan::Places& places) {
    return places.rank != rank || (places.rank_step != 0 && places.count > 1);
  };
  return step.kind == Kind::kPost || step.kind == Kind::kWait ||
         (step.kind == Kind::kCombine && (elsewhere(step.sources) || elsewhere(step.destinations)));
}

uint8_t number_of(plan::Collective collective, std::string_view algorithm) {
  const auto& all = plan::algorithms();
  const auto found = std::find_if(all.begin(), all.end(), [&](const plan::Algorithm& candidate) {
    return candidate.collective == collective && candidate.name == algorithm;
  });
  return static_cast<uint8_t>(found - all.begin());
}

}  // namespace

const ReadyPlan& PlanCache::find(plan::Collective collective, std::string_view algorithm, int root) {
  for (const auto& entry : entries_) {
    if (entry.collective == collective && entry.root == root && entry.algorithm == algorithm)
      return *entry.ready;
  }
  auto ready = std::make_unique<ReadyPlan>();
  ready->plan = plan::make_plan(collective, algorithm,
                                {.world = world_, .root = root, .ranks_per_node = ranks_per_node_});
  ready->algorithm = number_of(collective, ready->plan.algorithm);
  ready->steps = ready->plan.steps(rank_);
  ready->one_sided = std::any_of(ready->steps.begin(), ready->steps.end(),
                                 [&](const plan::Step& step) { return reaches_out(step, rank_); });
  entries_.push_back({collective, std::string(algorithm), root, std::move(ready)});
  return *entries_.back().ready;
}

}  // namespace lockstep::comms
