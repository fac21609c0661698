#include "lockstep/plan/pipeline.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"
#include "plan/check.h"
#include "plan/pipeline_orders.h"

namespace lockstep::plan {

namespace {

/// What a schedule computes on a rank.
using ComputeOrder = std::vector<Action> (*)(const PipelineShape& shape, int rank);

struct OrderedSchedule {
  Schedule schedule;
  ComputeOrder order;
  int (*least_microbatches)(int ranks) = [](int) { return 1; };  ///< With fewer it is not itself.
};

constexpr OrderedSchedule kSchedules[] = {
    {{"naive", "one micro-batch forward and back, then the next"}, naive_order},
    {{"gpipe", "all micro-batches forward, then all back"}, gpipe_order},
    {{"1f1b", "a forward and a backward by turns: as fast as gpipe, less memory"},
     one_forward_one_backward_order},
    {{"interleaved", "1f1b with several chunks of the model on each rank: a smaller bubble",
      /*interleaves=*/true},
     interleaved_order},
    {{"zb-h1", "1f1b with weight gradients put off into the bubble, in the same memory",
      /*interleaves=*/false, /*splits_backward=*/true},
     zero_bubble_h1_order,
     [](int ranks) { return ranks; }},
    {{"zb-h2", "more forwards first, so that no rank pauses once it has begun; twice the memory",
      /*interleaves=*/false, /*splits_backward=*/true},
     zero_bubble_h2_order,
     [](int ranks) { return 2 * ranks - 1; }}};

const OrderedSchedule& find(std::string_view wanted) {
  std::string known;
  for (const auto& candidate : kSchedules) {
    if (plain_name(candidate.schedule.name) == plain_name(wanted)) return candidate;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate.schedule.name);
  }
  throw UsageError(fmt::format("schedule '{}': unknown; hint: one of {}", wanted, known));
}

/// An action per stage and micro-batch for F, I, W, two sends and two receives.
constexpr int kMostActionsPerStage = 7;

std::string why_no_shape(const PipelineShape& shape) {
  if (shape.ranks < 1 || shape.ranks > kMostRanks) {
    return fmt::format("{} ranks is not between 1 and {}", shape.ranks, kMostRanks);
  }
  if (shape.microbatches < 1) {
    return fmt::format("{} micro-batches; hint: give at least 1", shape.microbatches);
  }
  if (shape.chunks < 1) return fmt::format("{} chunks; hint: give at least 1", shape.chunks);
  const auto most = kMostPipelineActions / kMostActionsPerStage / shape.ranks;
  if (shape.chunks > most || shape.microbatches > most / shape.chunks) {
    return fmt::format(
        "{} micro-batches on {} ranks with {} chunk{} each may have more than {} actions; hint: fewer of "
        "them",
        shape.microbatches, shape.ranks, shape.chunks, shape.chunks == 1 ? "" : "s", kMostPipelineActions);
  }
  return "";
}

}  // namespace

std::string_view name(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "F";
    case ActionKind::kBackward:
      return "B";
    case ActionKind::kInputGrad:
      return "I";
    case ActionKind::kWeightGrad:
      return "W";
    case ActionKind::kSendForward:
      return "SEND_F";
    case ActionKind::kRecvForward:
      return "RECV_F";
    case ActionKind::kSendBackward:
      return "SEND_B";
    case ActionKind::kRecvBackward:
      return "RECV_B";
  }
  return "?";
}

int PipelineShape::peer_of(const Action& action) const {
  if (action.is_compute()) return -1;
  const bool up = action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward;
  const int other = action.stage + (up ? 1 : -1);
  if (other < 0 || other >= stages() || rank_of(other) == rank_of(action.stage)) return -1;
  return rank_of(other);
}

const std::vector<Schedule>& schedules() {
  static const std::vector<Schedule> all = [] {
    std::vector<Schedule> found;
    for (const auto& one : kSchedules) found.push_back(one.schedule);
    return found;
  }();
  return all;
}

const Schedule& find_schedule(std::string_view name) {
  return find(name).schedule;
}

std::string why_not(const Schedule& schedule, const PipelineShape& shape) {
  if (const std::string problem = why_no_shape(shape); !problem.empty()) {
    return fmt::format("{}: {}", schedule.name, problem);
  }
  if (schedule.interleaves && shape.chunks == 1) {
    return fmt::format("{}: 1 chunk; hint: 2 or more, or 1f1b", schedule.name);
  }
  if (!schedule.interleaves && shape.chunks > 1) {
    return fmt::format("{}: {} chunks; hint: only interleaved has more than 1", schedule.name, shape.chunks);
  }
  const int least = find(schedule.name).least_microbatches(shape.ranks);
  if (shape.microbatches < least) {
    return fmt::format("{}: {} micro-batch{} on {} ranks, fewer than {}; hint: {} or more, or 1f1b",
                       schedule.name, shape.microbatches, shape.microbatches == 1 ? "" : "es", shape.ranks,
                       least, least);
  }
  return "";
}

PipelinePlan make_pipeline_plan(std::string_view schedule, const PipelineShape& shape) {
  const OrderedSchedule& found = find(schedule);
  if (const std::string problem = why_not(found.schedule, shape); !problem.empty()) throw UsageError(problem);
  PipelinePlan plan{.schedule = std::string(found.schedule.name), .shape = shape, .actions = {}};
  for (int rank = 0; rank < shape.ranks; ++rank) plan.actions.push_back(found.order(shape, rank));
  return with_messages(std::move(plan));
}

PipelinePlan forward_only(PipelinePlan plan) {
  for (auto& actions : plan.actions) {
    std::erase_if(actions, [](const Action& action) {
      return action.kind != ActionKind::kForward && action.kind != ActionKind::kSendForward &&
             action.kind != ActionKind::kRecvForward;
    });
  }
  return plan;
}

}  // namespace lockstep::plan
