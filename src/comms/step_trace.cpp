#include "comms/step_trace.h"

#include <fmt/format.h>

#include "lockstep/plan/text.h"

namespace lockstep::comms {

const StepNames::Of& StepNames::find(const ReadyPlan& ready) {
  const auto known = known_.find(&ready);
  if (known != known_.end()) return known->second;
  Of names = {.call = trace::Name(
                  fmt::format("{} {}{}", plan::name(ready.plan.collective), ready.plan.algorithm, suffix_)),
              .steps = {}};
  for (const auto& step : ready.steps) names.steps.emplace_back(plan::to_string(step));
  return known_.emplace(&ready, std::move(names)).first->second;
}

}  // namespace lockstep::comms
