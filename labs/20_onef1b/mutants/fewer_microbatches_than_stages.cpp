// Warms up with forwards of micro-batches that are not there, as the older course did.
#include <vector>

#include "lockstep/plan/pipeline.h"

namespace my_work {

using lockstep::plan::Action;
using lockstep::plan::ActionKind;

std::vector<Action> one_f_one_b(int stage, int stages, int microbatches) {
  std::vector<Action> order;
  const int warm_up = stages - 1 - stage;
  for (int m = 0; m < warm_up; ++m) order.push_back({ActionKind::kForward, stage, m});
  for (int m = 0; m < microbatches - warm_up; ++m) {
    order.push_back({ActionKind::kForward, stage, warm_up + m});
    order.push_back({ActionKind::kBackward, stage, m});
  }
  for (int m = microbatches - warm_up; m < microbatches; ++m)
    order.push_back({ActionKind::kBackward, stage, m});
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
