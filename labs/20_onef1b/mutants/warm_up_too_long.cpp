// One forward too many before the steady state.
#include <vector>

#include "lockstep/plan/pipeline.h"

namespace my_work {

using lockstep::plan::Action;
using lockstep::plan::ActionKind;

std::vector<Action> one_f_one_b(int stage, int stages, int microbatches) {
  std::vector<Action> order;
  int next = 0;  // forward
  const auto forward = [&] {
    if (next < microbatches) order.push_back({ActionKind::kForward, stage, next++});
  };
  for (int i = 0; i < stages - stage; ++i) forward();  // warm-up
  for (int m = 0; m < microbatches; ++m) {             // steady state; then, without forwards, the drain
    forward();
    order.push_back({ActionKind::kBackward, stage, m});
  }
  return order;
}

std::vector<Action> zero_bubble(int stage, int stages, int microbatches) {
  std::vector<Action> order;
  int next = 0;  // weight-grad
  for (const auto& action : one_f_one_b(stage, stages, microbatches)) {
    if (action.kind == ActionKind::kForward) {
      order.push_back(action);
      continue;
    }
    order.push_back({ActionKind::kInputGrad, stage, action.microbatch});
    if (action.microbatch >= stage) order.push_back({ActionKind::kWeightGrad, stage, next++});
  }
  while (next < microbatches) order.push_back({ActionKind::kWeightGrad, stage, next++});
  return order;
}

}  // namespace my_work
