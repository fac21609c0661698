#include "lab/schedules.h"

#include <fmt/format.h>

#include <algorithm>

namespace lab {

namespace {

using lockstep::plan::Action;
using lockstep::plan::ActionKind;

std::string short_name(const Action& action) {
  return fmt::format("{}{}", lockstep::plan::name(action.kind), action.microbatch);
}

/// What must have been run before on the same stage.
std::optional<ActionKind> needed_by(ActionKind kind) {
  if (kind == ActionKind::kForward) return std::nullopt;
  return kind == ActionKind::kWeightGrad ? ActionKind::kInputGrad : ActionKind::kForward;
}

std::vector<ActionKind> kinds_of(const StageShape& shape) {
  if (shape.splits_backward) return {ActionKind::kForward, ActionKind::kInputGrad, ActionKind::kWeightGrad};
  return {ActionKind::kForward, ActionKind::kBackward};
}

}  // namespace

std::string to_string(const StageShape& shape) {
  return fmt::format("stage {} of {}, {} micro-batch{}", shape.stage, shape.stages, shape.microbatches,
                     shape.microbatches == 1 ? "" : "es");
}

std::string to_string(const std::vector<Action>& actions) {
  constexpr size_t kShown = 40;
  std::string text;
  for (size_t i = 0; i < std::min(actions.size(), kShown); ++i)
    text += (i == 0 ? "" : " ") + short_name(actions[i]);
  return actions.size() > kShown ? text + " ..." : text;
}

std::optional<Flaw> first_flaw(const StageShape& shape, const std::vector<Action>& actions) {
  const auto flaw = [&](Flaw::Kind kind, const Action& action, const std::string& text) {
    return Flaw{kind, fmt::format("{}: {}; its order is {}", to_string(shape), text, to_string(actions)),
                action};
  };
  if (actions.empty()) return Flaw{Flaw::Kind::kNothing, to_string(shape) + ": the list is empty", {}};
  const auto kinds = kinds_of(shape);
  std::vector<Action> done;
  const auto has = [&](ActionKind kind, int microbatch) {
    return std::find(done.begin(), done.end(), Action{kind, shape.stage, microbatch}) != done.end();
  };
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    const auto told = fmt::format("action {} is {}", i, short_name(action));
    if (std::find(kinds.begin(), kinds.end(), action.kind) == kinds.end())
      return flaw(Flaw::Kind::kOtherKind, action, told);
    if (action.stage != shape.stage)
      return flaw(Flaw::Kind::kOtherStage, action, fmt::format("{} of stage {}", told, action.stage));
    if (action.microbatch < 0 || action.microbatch >= shape.microbatches) {
      return flaw(Flaw::Kind::kNoSuchMicrobatch, action,
                  fmt::format("{}, but micro-batches go from 0 to {}", told, shape.microbatches - 1));
    }
    if (has(action.kind, action.microbatch))
      return flaw(Flaw::Kind::kTwice, action, told + " for the second time");
    const auto needed = needed_by(action.kind);
    if (needed && !has(*needed, action.microbatch)) {
      return flaw(Flaw::Kind::kTooEarly, action,
                  fmt::format("{}, and {} has not run before it", told,
                              short_name({*needed, shape.stage, action.microbatch})));
    }
    done.push_back(action);
  }
  for (const auto kind : kinds) {
    for (int m = 0; m < shape.microbatches; ++m) {
      const Action action{kind, shape.stage, m};
      if (!has(kind, m)) return flaw(Flaw::Kind::kMissing, action, short_name(action) + " is missing");
    }
  }
  return std::nullopt;
}

void fail_for(Checker& checker, const Flaw& flaw) {
  switch (flaw.kind) {
    case Flaw::Kind::kNothing:
      checker.fail(
          "nothing scheduled", flaw.what,
          "Return the stage's actions in the order in which it runs them: forwards (F) and backwards "
          "(B) of all micro-batches.");
    case Flaw::Kind::kOtherStage:
      checker.fail(
          "wrong stage", flaw.what,
          "A stage runs its own layers alone: the second member of each action is the stage that the "
          "list is for.");
    case Flaw::Kind::kNoSuchMicrobatch:
      checker.fail("no such microbatch", flaw.what,
                   "Micro-batches are counted from 0 to M - 1. Look at the bounds of your loops.");
    case Flaw::Kind::kOtherKind:
      checker.fail(
          "wrong kind", flaw.what,
          "The list has computation alone, of the kinds that the lesson names. Messages are added to "
          "it afterwards, by lockstep::plan::with_messages.");
    case Flaw::Kind::kTwice:
      checker.fail("run twice", flaw.what,
                   "Each micro-batch goes forward once and back once; a second backward would add its "
                   "gradient again. Do two of your loops overlap?");
    case Flaw::Kind::kTooEarly:
      checker.fail("backward too early", flaw.what,
                   "A backward needs what the forward of the same micro-batch on the same stage has kept.");
    case Flaw::Kind::kMissing:
      break;
  }
  checker.fail("microbatch forgotten", flaw.what,
               "Every micro-batch must go forward and back through every stage, or its samples do not count. "
               "Look at where your loops begin and end.");
}

Report to_report(const lockstep::plan::PipelinePlan& plan,
                 const lockstep::plan::PipelineSimulation& simulation) {
  const auto ranks = plan.actions.size();
  Report report;
  report.time_us = simulation.makespan;
  report.done_us.assign(ranks, 0);
  report.bytes.assign(ranks, std::vector<int64_t>(ranks));
  report.messages = report.bytes;
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < plan.actions[rank].size(); ++i) {
      const Action& action = plan.actions[rank][i];
      const auto& span = simulation.actions[rank][i];
      if (action.is_send()) ++report.messages[rank][static_cast<size_t>(plan.shape.peer_of(action))];
      if (!action.is_compute()) continue;
      report.events.push_back({.rank = static_cast<int>(rank),
                               .kind = Event::Kind::kCompute,
                               .start_us = span.start,
                               .end_us = span.end,
                               .text = short_name(action)});
      report.done_us[rank] = std::max(report.done_us[rank], span.end);
    }
  }
  return report;
}

}  // namespace lab
