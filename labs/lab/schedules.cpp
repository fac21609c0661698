#include "lab/schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "lockstep/plan/pipeline_grid.h"

namespace lab {

namespace {

using lockstep::plan::Action;
using lockstep::plan::ActionKind;
using lockstep::plan::PipelinePlan;

std::string short_name(const Action& action) {
  if (action.kind > ActionKind::kRecvBackward)
    return fmt::format("ActionKind({})", static_cast<int>(action.kind));
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

/// A flaw's name in all lessons, and what it usually means.
const std::map<Flaw::Kind, std::pair<std::string, std::string>>& flaw_words() {
  using Kind = Flaw::Kind;
  static const std::map<Kind, std::pair<std::string, std::string>> all = {
      {Kind::kNothing,
       {"nothing scheduled",
        "Return the stage's actions in the order in which it runs them: forwards (F) and backwards (B) of "
        "all "
        "micro-batches."}},
      {Kind::kOtherStage,
       {"wrong stage",
        "A stage runs its own layers alone: the second member of each action is the stage that the list is "
        "for."}},
      {Kind::kNoSuchMicrobatch,
       {"no such microbatch",
        "Micro-batches are counted from 0 to M - 1. Look at the bounds of your loops."}},
      {Kind::kOtherKind,
       {"wrong kind",
        "The list has computation alone, of the kinds that the lesson names. Messages are added to it "
        "afterwards, by lockstep::plan::with_messages."}},
      {Kind::kTwice,
       {"run twice",
        "Each micro-batch goes forward once and back once; a second backward would add its gradient again. "
        "Do "
        "two of your loops overlap?"}},
      {Kind::kTooEarly,
       {"backward too early",
        "A backward needs what the forward of the same micro-batch on the same stage has kept."}},
      {Kind::kWeightTooEarly,
       {"weight gradient too early",
        "A weight-grad needs what the input-grad of the same micro-batch has computed."}},
      {Kind::kMissing,
       {"microbatch forgotten",
        "Every micro-batch must go forward and back through every stage, or its samples do not count. Look "
        "at "
        "where your loops begin and end."}},
  };
  return all;
}

}  // namespace

std::vector<PipelinePlan> ask_orders(Checker& checker, const std::string& name, OrderFunction order,
                                     const std::vector<PipelineSize>& sizes) {
  std::vector<StageShape> shapes;
  for (const auto& [stages, microbatches] : sizes) {
    for (int stage = 0; stage < stages; ++stage)
      shapes.push_back({.stage = stage, .stages = stages, .microbatches = microbatches});
  }
  const auto call_of = [&](const StageShape& shape) {
    return fmt::format("{}({}, {}, {})", name, shape.stage, shape.stages, shape.microbatches);
  };
  const auto lists = ask_twice(checker, shapes, call_of, [&](const StageShape& shape) {
    checker.in_world(progress().world = shape.stages);
    auto actions = order(shape.stage, shape.stages, shape.microbatches);
    actions.resize(std::min(actions.size(), 4 * static_cast<size_t>(shape.microbatches) + 16));
    return actions;
  });
  std::vector<PipelinePlan> plans;
  auto next = lists.begin();
  for (const auto& [stages, microbatches] : sizes) {
    plans.push_back({"yours", {.ranks = stages, .microbatches = microbatches}, {next, next + stages}});
    next += stages;
  }
  return plans;
}

std::vector<PipelineSize> fresh_sizes(const Checker& checker, bool with_fewer) {
  std::vector<PipelineSize> sizes;
  for (const int stages : checker.fresh_worlds(2, 9, 33)) {
    const auto salt = 100 * static_cast<uint64_t>(stages);
    if (with_fewer && stages > 1)
      sizes.push_back({stages, static_cast<int>(checker.draw_between(salt, 1, stages - 1))});
    sizes.push_back({stages, static_cast<int>(checker.draw_between(salt + 1, stages, 3 * stages))});
    sizes.push_back({stages, static_cast<int>(checker.draw_between(salt + 2, 257, 400))});
  }
  return sizes;
}

PipelineSize size_of(const PipelinePlan& plan) {
  return {plan.shape.ranks, plan.shape.microbatches};
}

StageShape shape_of(const PipelinePlan& plan, int stage) {
  return {.stage = stage, .stages = plan.shape.ranks, .microbatches = plan.shape.microbatches};
}

std::string microbatches_text(int count) {
  return fmt::format("{} micro-batch{}", count, count == 1 ? "" : "es");
}

std::string to_string(const PipelineSize& size) {
  return fmt::format("{}, {}", counted(size.stages, "stage"), microbatches_text(size.microbatches));
}

std::string to_string(const StageShape& shape) {
  return fmt::format("stage {} of {}, {}", shape.stage, shape.stages, microbatches_text(shape.microbatches));
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
  std::array<std::vector<bool>, 4> has;  // by kind and micro-batch
  has.fill(std::vector<bool>(static_cast<size_t>(shape.microbatches)));
  for (const Action& action : actions) {
    const auto name = short_name(action);
    if (std::find(kinds.begin(), kinds.end(), action.kind) == kinds.end())
      return flaw(Flaw::Kind::kOtherKind, action, name + " is in the list");
    if (action.stage != shape.stage)
      return flaw(Flaw::Kind::kOtherStage, action,
                  fmt::format("{} of stage {} is in the list", name, action.stage));
    if (action.microbatch < 0 || action.microbatch >= shape.microbatches) {
      return flaw(
          Flaw::Kind::kNoSuchMicrobatch, action,
          fmt::format("{} is in the list, but micro-batches go from 0 to {}", name, shape.microbatches - 1));
    }
    const auto m = static_cast<size_t>(action.microbatch);
    if (has[static_cast<size_t>(action.kind)][m])
      return flaw(Flaw::Kind::kTwice, action, name + " is there twice");
    if (const auto needed = needed_by(action.kind); needed && !has[static_cast<size_t>(*needed)][m]) {
      const Action before{*needed, shape.stage, action.microbatch};
      if (std::find(actions.begin(), actions.end(), before) == actions.end())
        return flaw(Flaw::Kind::kMissing, before, short_name(before) + " is missing");
      return flaw(
          action.kind == ActionKind::kWeightGrad ? Flaw::Kind::kWeightTooEarly : Flaw::Kind::kTooEarly,
          action, fmt::format("{} comes before {}", name, short_name(before)));
    }
    has[static_cast<size_t>(action.kind)][m] = true;
  }
  for (const auto kind : kinds) {
    for (int m = 0; m < shape.microbatches; ++m) {
      const Action action{kind, shape.stage, m};
      if (!has[static_cast<size_t>(kind)][static_cast<size_t>(m)])
        return flaw(Flaw::Kind::kMissing, action, short_name(action) + " is missing");
    }
  }
  return std::nullopt;
}

void fail_for(Checker& checker, const Flaw& flaw) {
  const auto& [name, meaning] = flaw_words().at(flaw.kind);
  checker.fail(name, flaw.what, meaning);
}

void expect_sound(Checker& checker, const PipelinePlan& order) {
  for (int stage = 0; stage < order.shape.ranks; ++stage) {
    if (const auto flaw = first_flaw(shape_of(order, stage), order.actions[static_cast<size_t>(stage)]))
      fail_for(checker, *flaw);
  }
}

Report to_report(const lockstep::plan::PipelinePlan& plan,
                 const lockstep::plan::PipelineSimulation& simulation) {
  const auto ranks = plan.actions.size();
  Report report;
  report.time_us = simulation.makespan;
  report.is_in_cycles = true;
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

void picture(Checker& checker, const std::string& title, const PipelinePlan& plan) {
  if (plan.shape.ranks > 16 || plan.shape.microbatches > 32) return;
  auto grid = pipeline_grid(plan);
  grid.pop_back();  // the last line's end
  checker.note(title + "; a column is a clock cycle\n" + grid);
  checker.show(to_report(plan, simulate_pipeline(plan)));
}

}  // namespace lab
