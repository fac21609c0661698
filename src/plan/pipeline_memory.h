#pragma once

#include <algorithm>
#include <vector>

#include "lockstep/plan/pipeline.h"

namespace lockstep::plan {

/// The most memory that a rank's actions hold at once, if one chunk's micro-batch takes `activation` from F
/// to the end of B or I, and `weight_input` from then to the end of W. The clock does not matter: a rank runs
/// one action after the other.
inline double peak_memory(const std::vector<Action>& actions, double activation, double weight_input) {
  int64_t activations = 0;
  int64_t weight_inputs = 0;
  double peak = 0;
  for (const auto& action : actions) {
    activations += action.kind == ActionKind::kForward ? 1 : 0;
    activations -= action.kind == ActionKind::kBackward || action.kind == ActionKind::kInputGrad ? 1 : 0;
    weight_inputs += action.kind == ActionKind::kInputGrad ? 1 : 0;
    weight_inputs -= action.kind == ActionKind::kWeightGrad ? 1 : 0;
    peak = std::max(peak, static_cast<double>(activations) * activation +
                              static_cast<double>(weight_inputs) * weight_input);
  }
  return peak;
}

}  // namespace lockstep::plan
