// Lesson 20: 1F1B.
//
// The order below is GPipe's: all forwards, then all backwards. A stage keeps the activations of all M
// micro-batches that way. Turn it into 1F1B: warm up with a few forwards, then let a forward and a backward
// alternate, then run the backwards that are left. Stage s may keep P - s micro-batches, however many there
// are.
//
// What you have: Action{ActionKind::kForward, stage, m} and Action{ActionKind::kBackward, stage, m}; for the
//                second task kInputGrad and kWeightGrad as well. An action's members are kind, stage and
//                microbatch. The library's functions are not yours to call here.
// The lesson:    lockstep lab read 20
// A hint:        lockstep lab hint 20
// Your verdict:  lockstep lab check 20
#include <vector>

#include "lockstep/plan/pipeline.h"

namespace my_work {

using lockstep::plan::Action;
using lockstep::plan::ActionKind;

/// What stage `stage` of `stages` runs, in its order; forwards and backwards both in the order of the
/// micro-batches. There may be fewer micro-batches than stages.
std::vector<Action> one_f_one_b(int stage, int stages, int microbatches) {
  (void)stages;
  std::vector<Action> order;
  for (int m = 0; m < microbatches; ++m) order.push_back({ActionKind::kForward, stage, m});
  for (int m = 0; m < microbatches; ++m) order.push_back({ActionKind::kBackward, stage, m});
  return order;
}

/// The same with each backward in two halves: the input-grad of m where its backward was; the weight-grad of
/// m right after the input-grad of m + stage, and those that are left last. There are at least as
/// many micro-batches as stages.
std::vector<Action> zero_bubble(int stage, int stages, int microbatches) {
  (void)stage;
  (void)stages;
  (void)microbatches;
  return {};
}

}  // namespace my_work
