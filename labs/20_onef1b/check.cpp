#include "20_onef1b/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/schedules.h"
#include "lockstep/plan/pipeline_grid.h"
#include "lockstep/plan/pipeline_simulate.h"
#include "lockstep/plan/pipeline_verify.h"

namespace lab::onef1b {

namespace {

using lockstep::plan::Action;
using lockstep::plan::ActionKind;
using lockstep::plan::PipelinePlan;
using lockstep::plan::PipelineSends;

std::vector<int> worlds(const Checker& checker) {
  return checker.worlds({4, 2, 3, 1, 5, 8});
}

/// The run to look at: the first one, unless it is too large to see anything.
bool is_shown(const Checker& checker, int stages, int microbatches) {
  return stages == worlds(checker).front() && stages <= 16 && microbatches == std::max(6, stages);
}

std::string text_of(const PipelinePlan& plan) {
  return fmt::format("{} stage{}, {} micro-batch{}", plan.shape.ranks, plan.shape.ranks == 1 ? "" : "s",
                     plan.shape.microbatches, plan.shape.microbatches == 1 ? "" : "es");
}

PipelinePlan empty_plan(int stages, int microbatches) {
  return {.schedule = "yours", .shape = {.ranks = stages, .microbatches = microbatches}, .actions = {}};
}

/// All forwards are there and only backwards at the end are missing.
bool has_no_drain(const Flaw& flaw, const std::vector<Action>& actions, int microbatches) {
  const auto forwards = std::count_if(actions.begin(), actions.end(), [](const Action& action) {
    return action.kind == ActionKind::kForward;
  });
  return flaw.kind == Flaw::Kind::kMissing && flaw.action.kind == ActionKind::kBackward &&
         flaw.action.microbatch > 0 && forwards == microbatches &&
         std::ssize(actions) == microbatches + flaw.action.microbatch;
}

/// Micro-batches back in their order.
void check_parity(Checker& checker, const StageShape& shape, const std::vector<Action>& actions) {
  int next = 0;
  for (const auto& action : actions) {
    if (action.kind == ActionKind::kForward || action.kind == ActionKind::kInputGrad) continue;
    checker.expect(
        action.microbatch == next, "gradients out of order",
        fmt::format("{}: {}{} comes where {}{} is next; its order is {}", to_string(shape),
                    lockstep::plan::name(action.kind), action.microbatch, lockstep::plan::name(action.kind),
                    next, to_string(actions)),
        "Gradients are added up in the order of the backwards, and float sums depend on it. Go back in the "
        "order 0, 1, 2, ..., in the drain too, and all schedules end with the same bits.");
    ++next;
  }
}

PipelinePlan ask(const Seam& seam, Checker& checker, int stages, int microbatches) {
  auto plan = empty_plan(stages, microbatches);
  for (int stage = 0; stage < stages; ++stage) {
    const StageShape shape{.stage = stage, .stages = stages, .microbatches = microbatches};
    tell_progress(to_string(shape));
    const auto& actions = plan.actions.emplace_back(seam.one_f_one_b(stage, stages, microbatches));
    if (const auto flaw = first_flaw(shape, actions)) {
      if (microbatches < stages) {
        checker.fail(
            "fewer microbatches than stages", flaw->what,
            "With M < P the warm-up has no more than M forwards, and there may be no steady state at all. It "
            "is right for M >= P: which of your loops counts further than there are micro-batches?");
      }
      if (has_no_drain(*flaw, actions, microbatches)) {
        checker.fail(
            "drain forgotten", flaw->what,
            "When the forwards have run out, the micro-batches of the warm-up are still to go back: as many "
            "backwards as the warm-up had forwards.");
      }
      fail_for(checker, *flaw);
    }
    check_parity(checker, shape, actions);
  }
  return plan;
}

/// No more activations than it takes to keep every stage busy.
void check_memory(Checker& checker, const PipelinePlan& order, const std::vector<double>& peaks) {
  const int P = order.shape.ranks, M = order.shape.microbatches;
  const bool keeps_all = std::all_of(peaks.begin(), peaks.end(), [&](double peak) { return peak == M; });
  for (int stage = 0; stage < P; ++stage) {
    const auto at = static_cast<size_t>(stage);
    const int most = std::min(M, P - stage);
    if (peaks[at] <= most) continue;
    const auto what = fmt::format(
        "{}: stage {} keeps the activations of {} micro-batches at once, expected at most "
        "min(M, P - stage) = {}; its order is {}",
        text_of(order), stage, peaks[at], most, to_string(order.actions[at]));
    if (keeps_all) {
      checker.fail(
          "memory not bounded", what,
          "That is GPipe: everything goes forward first, so that all M are kept. As soon as a stage's first "
          "gradient can be there, let backwards take turns with forwards.");
    }
    checker.fail(
        "warm up too long", what,
        "The first gradient can come back to stage s when its micro-batch has been through the P - 1 - s "
        "stages after it. So many forwards warm up, and then the next action is a forward, then a backward.");
  }
}

void check_bubble(Checker& checker, const PipelinePlan& order,
                  const lockstep::plan::PipelineSimulation& simulation) {
  const int P = order.shape.ranks, M = order.shape.microbatches;
  const double expected = static_cast<double>(P - 1) / (M + P - 1);
  checker.expect(
      std::abs(simulation.bubble_of_total - expected) < 1e-12, "warm up too short",
      fmt::format("{}: ranks have nothing to do for {:.1f}% of the time, GPipe's (P-1)/(M+P-1) is {:.1f}%; "
                  "the order of stage 0 is {}",
                  text_of(order), 100 * simulation.bubble_of_total, 100 * expected,
                  to_string(order.actions[0])),
      "A stage waits for a gradient although it could send one more forward on its way. P - 1 - s forwards "
      "warm up stage s, before the turns begin.");
}

void check_sends(Checker& checker, const PipelinePlan& plan, const lockstep::plan::PipelineVerdict& verdict) {
  for (const auto sends : {PipelineSends::kForwardAsync, PipelineSends::kBackwardAsync}) {
    const auto& blocked = verdict.blocked[static_cast<size_t>(sends)];
    if (blocked.empty()) continue;
    checker.fail(
        "deadlock",
        fmt::format("{}, sends {}: {}", text_of(plan), lockstep::plan::name(sends),
                    describe(plan, blocked[0])),
        "It is enough for 1F1B if the sends of one direction do not wait for their receive. Do neighbours "
        "agree on who runs what when?");
  }
}

void check_one(const Seam& seam, Checker& checker, int stages, int microbatches) {
  const auto order = ask(seam, checker, stages, microbatches);
  const auto plan = with_messages(order);
  const auto verdict = verify_pipeline(plan);
  checker.expect(
      verdict.ok, "deadlock", fmt::format("{}: {}", text_of(plan), verdict.problem),
      "Two stages wait for each other: one for a gradient, the next one for a forward that comes only after "
      "it. Does every stage warm up with more forwards than the stage after it?");
  const auto simulation = simulate_pipeline(plan);
  if (is_shown(checker, stages, microbatches)) checker.show(to_report(plan, simulation));
  check_memory(checker, order, verdict.peak_activations);
  check_bubble(checker, order, simulation);
  check_sends(checker, plan, verdict);
}

/// As `lockstep plan pipeline` tells it.
void note_sends(Checker& checker, const PipelinePlan& plan) {
  const auto verdict = verify_pipeline(plan);
  std::string text = fmt::format("your sends, {}:", text_of(plan));
  for (const auto sends : lockstep::plan::kAllPipelineSends) {
    const auto& blocked = verdict.blocked[static_cast<size_t>(sends)];
    text += fmt::format("\n  {:14}  {}", lockstep::plan::name(sends),
                        blocked.empty() ? "completes" : "deadlock: " + describe(plan, blocked[0]));
  }
  checker.note(text);
}

void note_grid(Checker& checker, const std::string& title, const PipelinePlan& plan) {
  auto grid = pipeline_grid(plan);
  grid.pop_back();  // the last line's end
  checker.note(title + "\n" + grid);
}

void check_one_f_one_b(const Seam& seam, Checker& checker) {
  for (const int stages : worlds(checker)) {
    checker.in_world(stages);
    for (const int microbatches : {6, 8, 16, stages, stages + 1, 3 * stages + 2}) {
      if (microbatches >= stages) check_one(seam, checker, stages, microbatches);
    }
  }
  for (const int stages : worlds(checker)) {
    checker.in_world(stages);
    for (int microbatches = stages - 1; microbatches >= 1; --microbatches)
      check_one(seam, checker, stages, microbatches);
  }
  const int first = worlds(checker).front();
  if (const int microbatches = std::max(6, first); is_shown(checker, first, microbatches)) {
    const auto plan = with_messages(ask(seam, checker, first, microbatches));
    note_grid(checker, "your 1F1B; a column is a clock cycle", plan);
    note_sends(checker, plan);
  }
  checker.proved("stage s keeps at most min(M, P - s) activations, and fewer micro-batches than stages work");
  checker.proved("the bubble is GPipe's: (P-1)/(M+P-1)");
  checker.proved("nobody waits for ever, even if the sends of one direction wait for their receive");
  checker.proved("every stage goes back in the order of the micro-batches: the same bits as with GPipe");
}

void check_zero_bubble(const Seam& seam, Checker& checker) {
  for (const int P : worlds(checker)) {
    checker.in_world(P);
    for (const int M : {6, 8, 16, P, P + 1, 3 * P + 2}) {
      if (M < P) continue;
      auto order = empty_plan(P, M);
      for (int stage = 0; stage < P; ++stage) {
        const StageShape shape{.stage = stage, .stages = P, .microbatches = M, .splits_backward = true};
        tell_progress("zero_bubble, " + to_string(shape));
        const auto& actions = order.actions.emplace_back(seam.zero_bubble(stage, P, M));
        const auto flaw = first_flaw(shape, actions);
        checker.expect(
            !flaw || flaw->kind != Flaw::Kind::kOtherKind || flaw->action.kind != ActionKind::kBackward,
            "backward not split", flaw ? flaw->what : "",
            "Here a backward is two actions: kInputGrad, for which the stage before waits, and "
            "kWeightGrad, for which nobody does.");
        checker.expect(
            !flaw || flaw->kind != Flaw::Kind::kNothing, "no zero bubble yet", flaw ? flaw->what : "",
            "Your 1F1B is right. Now the second task: take its list and split the backwards in it.");
        if (flaw) fail_for(checker, *flaw);
        check_parity(checker, shape, actions);
      }
      const auto plan = with_messages(order);
      const auto verdict = verify_pipeline(plan);
      checker.expect(verdict.ok, "deadlock", fmt::format("{}: {}", text_of(plan), verdict.problem),
                     "Keep the order of 1F1B: input-grads take the place of backwards.");
      const auto simulation = simulate_pipeline(plan);
      if (is_shown(checker, P, M)) note_grid(checker, "your zero bubble", plan);
      for (int stage = 0; stage < P; ++stage) {
        const auto at = static_cast<size_t>(stage);
        checker.expect(
            verdict.peak_activations[at] <= P, "weight gradients too late",
            fmt::format("{}: stage {} keeps {} micro-batches at once, counted until their weight-grad; "
                        "expected at most P = {}; its order is {}",
                        text_of(plan), stage, verdict.peak_activations[at], P, to_string(order.actions[at])),
            "What a weight-grad needs stays in memory until it has run. Stage s can put off s of them: then "
            "it keeps P - s + s = P micro-batches.");
      }
      checker.expect(
          simulation.makespan <= 3 * M + P - 1, "weight gradients too soon",
          fmt::format("{}: takes {} cycles, expected 3M + P - 1 = {}; the last stage runs {}", text_of(plan),
                      simulation.makespan, 3 * M + P - 1, to_string(order.actions.back())),
          "While a stage runs weight-grads, the stage before waits for its next input-grad. Stage s puts "
          "off s of them: the weight-grad of m comes right after the input-grad of m + s.");
    }
  }
  checker.proved("with split backwards the time is 3M + P - 1 instead of 3M + 3(P - 1), in P activations");
}

void tell_schedules(const Seam& seam, Checker& checker) {
  const int P = 4;
  std::string text =
      "4 stages: bubble and activations of stage 0 and 3\n  M        gpipe        1F1B  zero bubble";
  for (const int M : {4, 8, 16, 32}) {
    const auto gpipe =
        simulate_pipeline(lockstep::plan::make_pipeline_plan("gpipe", {.ranks = P, .microbatches = M}));
    auto halves = empty_plan(P, M);
    for (int stage = 0; stage < P; ++stage) halves.actions.push_back(seam.zero_bubble(stage, P, M));
    const auto own = simulate_pipeline(with_messages(ask(seam, checker, P, M)));
    const auto split = simulate_pipeline(with_messages(halves));
    const auto cell = [](const lockstep::plan::PipelineSimulation& run) {
      return fmt::format("{:.1f}% {:>2} {}", 100 * run.bubble_of_total, run.peak_activations.front(),
                         run.peak_activations.back());
    };
    text += fmt::format("\n{:3}  {:>11}  {:>10}  {:>11}", M, cell(gpipe), cell(own), cell(split));
  }
  checker.note(text);
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_one_f_one_b(seam, checker);
  check_zero_bubble(seam, checker);
  tell_schedules(seam, checker);
}

}  // namespace lab::onef1b
