#include "plan/pipeline_orders.h"

#include <algorithm>

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

namespace {

using enum ActionKind;

/// Runs `warm_up` of the forwards, or all if there are fewer; then a forward, while there are any, and a
/// backward by turns.
std::vector<Action> by_turns(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                             int warm_up) {
  auto next = forwards.begin() + std::min<std::ptrdiff_t>(warm_up, std::ssize(forwards));
  std::vector<Action> order(forwards.begin(), next);
  for (const auto& backward : backwards) {
    if (next != forwards.end()) order.push_back(*next++);
    order.push_back(backward);
  }
  return order;
}

/// The same action for every micro-batch.
std::vector<Action> for_each_microbatch(ActionKind kind, int stage, int microbatches) {
  std::vector<Action> actions;
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    actions.push_back({kind, stage, microbatch});
  }
  return actions;
}

/// Forwards and input-grads by turns; each weight-grad comes `lag` micro-batches after its input-grad, and
/// those that are left come last.
std::vector<Action> zero_bubble(const PipelineShape& shape, int rank, int warm_up, int lag) {
  const int last = shape.microbatches - 1;
  std::vector<Action> order;
  for (const auto& action : by_turns(for_each_microbatch(kForward, rank, shape.microbatches),
                                     for_each_microbatch(kInputGrad, rank, shape.microbatches), warm_up)) {
    order.push_back(action);
    if (action.kind != kInputGrad) continue;
    if (action.microbatch >= lag) order.push_back({kWeightGrad, rank, action.microbatch - lag});
  }
  for (int microbatch = std::max(0, last - lag + 1); microbatch <= last; ++microbatch) {
    order.push_back({kWeightGrad, rank, microbatch});
  }
  return order;
}

}  // namespace

std::vector<Action> naive_order(const PipelineShape& shape, int rank) {
  return by_turns(for_each_microbatch(kForward, rank, shape.microbatches),
                  for_each_microbatch(kBackward, rank, shape.microbatches), 0);
}

std::vector<Action> gpipe_order(const PipelineShape& shape, int rank) {
  return by_turns(for_each_microbatch(kForward, rank, shape.microbatches),
                  for_each_microbatch(kBackward, rank, shape.microbatches), shape.microbatches);
}

std::vector<Action> one_forward_one_backward_order(const PipelineShape& shape, int rank) {
  return by_turns(for_each_microbatch(kForward, rank, shape.microbatches),
                  for_each_microbatch(kBackward, rank, shape.microbatches), shape.ranks - 1 - rank);
}

std::vector<Action> interleaved_order(const PipelineShape& shape, int rank) {
  const int groups = std::max(1, shape.microbatches / shape.ranks);
  std::vector<Action> forwards, backwards;
  for (int group = 0; group < groups; ++group) {
    const auto begin = static_cast<int>(part_begin(shape.microbatches, groups, group));
    const auto end = static_cast<int>(part_begin(shape.microbatches, groups, group + 1));
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int microbatch = begin; microbatch < end; ++microbatch) {
        forwards.push_back({kForward, chunk * shape.ranks + rank, microbatch});
        backwards.push_back({kBackward, (shape.chunks - 1 - chunk) * shape.ranks + rank, microbatch});
      }
    }
  }
  // The last rank must reach its last chunk before it can turn back, which takes the other chunks of the
  // first group. No group is longer than the first, so that this is enough for all.
  const auto first_group = static_cast<int>(part_begin(shape.microbatches, groups, 1));
  return by_turns(forwards, backwards, (shape.chunks - 1) * first_group + 2 * (shape.ranks - 1 - rank));
}

std::vector<Action> zero_bubble_h1_order(const PipelineShape& shape, int rank) {
  return zero_bubble(shape, rank, shape.ranks - 1 - rank, rank);
}

std::vector<Action> zero_bubble_h2_order(const PipelineShape& shape, int rank) {
  return zero_bubble(shape, rank, 2 * (shape.ranks - 1 - rank), 2 * rank);
}

}  // namespace lockstep::plan
