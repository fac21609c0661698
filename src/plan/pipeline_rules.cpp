#include "plan/pipeline_rules.h"

#include <fmt/format.h>

#include "lockstep/plan/pipeline_text.h"
#include "plan/check.h"
#include "plan/pipeline_limits.h"

namespace lockstep::plan {

namespace {

using enum ActionKind;

std::string shape_problem(const PipelinePlan& plan) {
  const PipelineShape& shape = plan.shape;
  if (shape.ranks < 1 || shape.ranks > kMostRanks || shape.microbatches < 1 || shape.chunks < 1) {
    return fmt::format("there is no pipeline of {} ranks, {} micro-batches and {} chunks", shape.ranks,
                       shape.microbatches, shape.chunks);
  }
  if (auto problem = too_large(shape); !problem.empty()) return problem;
  if (std::ssize(plan.actions) != shape.ranks) {
    return fmt::format("the plan has the actions of {} ranks instead of {}", plan.actions.size(),
                       shape.ranks);
  }
  return "";
}

std::string place_problem(const PipelineShape& shape, int rank, const Action& action) {
  if (action.kind > kRecvBackward) return "is no action";
  if (action.stage < 0 || action.stage >= shape.stages()) {
    return fmt::format("there is no stage {} of {}", action.stage, shape.stages());
  }
  if (action.microbatch < 0 || action.microbatch >= shape.microbatches) {
    return fmt::format("there is no micro-batch {} of {}", action.microbatch, shape.microbatches);
  }
  if (shape.rank_of(action.stage) != rank) {
    return fmt::format("stage {} is on rank {}", action.stage, shape.rank_of(action.stage));
  }
  if (!action.is_compute() && shape.peer_of(action) < 0) return "there is no other rank for it";
  return "";
}

std::string tell(size_t rank, size_t index, const Action& action, const std::string& problem) {
  return fmt::format("rank {} action {} ({}): {}", rank, index, to_string(action), problem);
}

/// Remembers what has been done of each stage and micro-batch.
class Rules {
 public:
  explicit Rules(const PipelineShape& shape)
      : shape_(shape),
        done_(static_cast<size_t>(shape.stages()) * static_cast<size_t>(shape.microbatches), 0) {}

  /// Notes an action; returns why it cannot be run now, or "".
  std::string run(const Action& action) {
    if (has(action, action.kind)) return "is there a second time";
    if (auto problem = need_problem(action); !problem.empty()) return problem;
    done_[at(action.stage, action.microbatch)] |= bit(action.kind);
    return "";
  }

  /// The first action that a rank still has to run, in words, or "".
  std::string missing(int rank) const {
    for (int stage = rank; stage < shape_.stages(); stage += shape_.ranks) {
      for (int microbatch = 0; microbatch < shape_.microbatches; ++microbatch) {
        for (const ActionKind kind : {kForward, kBackward, kWeightGrad, kSendForward, kSendBackward}) {
          if (lacks({kind, stage, microbatch})) return to_string(Action{kind, stage, microbatch});
        }
      }
    }
    return "";
  }

 private:
  static uint8_t bit(ActionKind kind) { return static_cast<uint8_t>(1U << static_cast<unsigned>(kind)); }

  size_t at(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(shape_.microbatches) +
           static_cast<size_t>(microbatch);
  }

  bool has(const Action& action, ActionKind kind, int stages_on = 0) const {
    return (done_[at(action.stage + stages_on, action.microbatch)] & bit(kind)) != 0;
  }
  bool has_gone_back(const Action& action, int stages_on = 0) const {
    return has(action, kBackward, stages_on) || has(action, kInputGrad, stages_on);
  }

  std::string need_problem(const Action& action) const {
    switch (action.kind) {
      case kForward:
        return input_problem(action);
      case kBackward:
      case kInputGrad:
        return gradient_problem(action);
      case kWeightGrad:
        return has(action, kInputGrad) ? "" : "its input-grad has not run";
      case kSendForward:
        return has(action, kForward) ? "" : "its forward has not run";
      case kSendBackward:
        return has_gone_back(action) ? "" : "its backward has not run";
      case kRecvForward:
      case kRecvBackward:
        break;
    }
    return "";
  }

  std::string input_problem(const Action& action) const {
    if (action.stage == 0) return "";
    const bool from_afar = shape_.peer_of({kRecvForward, action.stage, action.microbatch}) >= 0;
    if (from_afar) return has(action, kRecvForward) ? "" : "its input has not arrived";
    return has(action, kForward, -1) ? "" : fmt::format("stage {} has not run forward", action.stage - 1);
  }

  std::string gradient_problem(const Action& action) const {
    if (!has(action, kForward)) return "its forward has not run";
    if (has_gone_back(action)) return "has gone back already";
    if (action.stage == shape_.stages() - 1) return "";
    const bool from_afar = shape_.peer_of({kRecvBackward, action.stage, action.microbatch}) >= 0;
    if (from_afar) return has(action, kRecvBackward) ? "" : "its gradient has not arrived";
    return has_gone_back(action, 1) ? "" : fmt::format("stage {} has not run backward", action.stage + 1);
  }

  /// Whether an action that must be there is not. Receives are, where what needs them is.
  bool lacks(const Action& action) const {
    switch (action.kind) {
      case kForward:
        return !has(action, kForward);
      case kBackward:
        return !has_gone_back(action);
      case kWeightGrad:
        return has(action, kInputGrad) && !has(action, kWeightGrad);
      default:
        return shape_.peer_of(action) >= 0 && !has(action, action.kind);
    }
  }

  const PipelineShape shape_;
  std::vector<uint8_t> done_;  ///< A bit per kind.
};

}  // namespace

std::string misplaced(const PipelinePlan& plan) {
  if (auto problem = shape_problem(plan); !problem.empty()) return problem;
  for (size_t rank = 0; rank < plan.actions.size(); ++rank) {
    const auto& actions = plan.actions[rank];
    for (size_t index = 0; index < actions.size(); ++index) {
      const auto problem = place_problem(plan.shape, static_cast<int>(rank), actions[index]);
      if (!problem.empty()) return tell(rank, index, actions[index], problem);
    }
  }
  return "";
}

std::string broken_rule(const PipelinePlan& plan) {
  if (auto problem = misplaced(plan); !problem.empty()) return problem;
  Rules rules(plan.shape);
  for (size_t rank = 0; rank < plan.actions.size(); ++rank) {
    const auto& actions = plan.actions[rank];
    for (size_t index = 0; index < actions.size(); ++index) {
      const auto problem = rules.run(actions[index]);
      if (!problem.empty()) return tell(rank, index, actions[index], problem);
    }
    const auto missing = rules.missing(static_cast<int>(rank));
    if (!missing.empty()) return fmt::format("rank {} ends without {}", rank, missing);
  }
  return "";
}

}  // namespace lockstep::plan
