#pragma once

#include <algorithm>

#include "fuzz/fuzz.h"
#include "lockstep/plan/grid.h"
#include "lockstep/plan/text.h"
#include "lockstep/plan/verify.h"
#include "plan/reference.h"

namespace lockstep::fuzz {

/// What holds for any plan that was read: it reads back to itself, can be drawn and judged, and what the
/// verifier accepts gives right results on real buffers.
inline void check_plan(const plan::Plan& plan, const plan::Plan& back) {
  require(plan::to_string(back) == plan::to_string(plan), "a plan reads back to the same text");
  int64_t steps = 0;
  for (int rank = 0; rank < plan.world; ++rank) {
    require(back.steps(rank) == plan.steps(rank), "a plan reads back to the same steps");
    steps += plan.size(rank);
  }
  constexpr int64_t kMostSteps = 1000;
  constexpr int64_t kMostSlots = 1 << 16;
  if (steps > kMostSteps || int64_t{plan.world} * plan.slots > kMostSlots || plan.chunks > kMostSlots) return;

  const plan::Verdict verdict = plan::verify(plan);
  require(verdict.ok == verdict.problem.empty(), "a verdict has a problem or is good");
  require(verdict.problem.size() < 2000, "a problem is short");
  if (plan.world <= plan::kMostGridRanks) require(!plan::grid(plan).empty(), "a plan can be drawn");
  constexpr int kFewRanks = 8;
  constexpr int kFewSlots = 64;
  if (!verdict.ok || plan.world > kFewRanks || std::max(plan.chunks, plan.slots) > kFewSlots) return;
  const std::string fault = plan::reference::any_fault_of(plan, 3, 0);
  require(fault.empty(), ("a proved plan is right on real buffers: " + fault).c_str());
}

}  // namespace lockstep::fuzz
