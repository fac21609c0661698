#include "20_onef1b/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "lab/schedules.h"
#include "lockstep/plan/pipeline_simulate.h"
#include "lockstep/plan/pipeline_verify.h"

namespace lab::onef1b {

namespace {

using lockstep::plan::Action;
using lockstep::plan::ActionKind;
using lockstep::plan::PipelinePlan;
using lockstep::plan::PipelineSimulation;

/// At least as many micro-batches as stages; the first one is the one to look at.
std::vector<PipelineSize> filled_sizes(const Checker& checker) {
  std::vector<PipelineSize> all;
  for (const int stages : checker.worlds({4, 2, 3, 1, 5, 6, 7, 8})) {
    const int shown = std::max(6, stages);
    all.push_back({stages, shown});
    for (int microbatches = stages; microbatches <= 3 * stages + 2; ++microbatches) {
      if (microbatches != shown) all.push_back({stages, microbatches});
    }
  }
  const auto fresh = fresh_sizes(checker, /*with_fewer=*/false);
  all.insert(all.end(), fresh.begin(), fresh.end());
  return all;
}

/// Fewer micro-batches than stages, the most first.
std::vector<PipelineSize> short_sizes(const Checker& checker) {
  std::vector<PipelineSize> all;
  for (const int stages : checker.worlds({4, 2, 3, 1, 5, 6, 7, 8})) {
    for (int microbatches = stages - 1; microbatches >= 1; --microbatches)
      all.push_back({stages, microbatches});
  }
  for (const auto& size : fresh_sizes(checker, /*with_fewer=*/true)) {
    if (size.microbatches < size.stages) all.push_back(size);
  }
  return all;
}

bool is_forward(const Action& action) {
  return action.kind == ActionKind::kForward;
}

/// All forwards are there and only backwards at the end are missing.
bool has_no_drain(const Flaw& flaw, const std::vector<Action>& actions, int microbatches) {
  return flaw.kind == Flaw::Kind::kMissing && flaw.action.kind == ActionKind::kBackward &&
         flaw.action.microbatch > 0 &&
         std::count_if(actions.begin(), actions.end(), is_forward) == microbatches &&
         std::ssize(actions) == microbatches + flaw.action.microbatch;
}

/// Micro-batches in their order, forward and back.
void expect_in_order(Checker& checker, const StageShape& shape, const std::vector<Action>& actions) {
  std::array<int, 4> next = {};  // by kind
  for (const auto& action : actions) {
    const int expected = next[static_cast<size_t>(action.kind)]++;
    if (action.microbatch == expected) continue;
    const auto kind = lockstep::plan::name(action.kind);
    const auto what = fmt::format("{}: {}{} comes where {}{} is next; its order is {}", to_string(shape),
                                  kind, action.microbatch, kind, expected, to_string(actions));
    if (is_forward(action)) {
      checker.fail("forwards out of order", what,
                   "Forwards go in the order 0, 1, 2, ..., on every stage: the next stage waits for them in "
                   "that order.");
    }
    checker.fail("gradients out of order", what,
                 "Gradients are added up in the order of the backwards, and float sums depend on it. Go back "
                 "in the order 0, 1, 2, ..., in the drain too, and all schedules end with the same bits.");
  }
}

void expect_sound_1f1b(Checker& checker, const PipelinePlan& order) {
  const auto [stages, microbatches] = size_of(order);
  for (int stage = 0; stage < stages; ++stage) {
    const auto shape = shape_of(order, stage);
    const auto& actions = order.actions[static_cast<size_t>(stage)];
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
    expect_in_order(checker, shape, actions);
  }
}

/// An action that comes too soon or too late.
struct Misplaced {
  int microbatch = 0;
  int found = 0;     ///< So many of the others come before it,
  int expected = 0;  ///< and so many should.
};

/// The first action of kind `kind` before which there are not `expected(microbatch)` of the kinds `others`.
std::optional<Misplaced> first_misplaced(const std::vector<Action>& actions, ActionKind kind,
                                         const std::vector<ActionKind>& others,
                                         const std::function<int(int)>& expected) {
  int found = 0;
  for (const auto& action : actions) {
    if (action.kind == kind && found != expected(action.microbatch))
      return Misplaced{action.microbatch, found, expected(action.microbatch)};
    found += static_cast<int>(std::count(others.begin(), others.end(), action.kind));
  }
  return std::nullopt;
}

/// What is known of a plan: that ranks wait for ever, or its memory and `time`.
std::string cost_text(const PipelinePlan& plan, int stage,
                      const std::function<std::string(const PipelineSimulation&)>& time) {
  const auto verdict = verify_pipeline(plan);
  if (!verdict.ok) return verdict.problem;
  return fmt::format(
      "it keeps {} at once, and {}",
      microbatches_text(static_cast<int>(verdict.peak_activations[static_cast<size_t>(stage)])),
      time(simulate_pipeline(plan)));
}

/// Why the order of `stage` is not 1F1B.
[[noreturn]] void fail_misplaced(Checker& checker, const PipelinePlan& order, int stage, const Misplaced& it,
                                 bool is_gpipe) {
  const auto [P, M] = size_of(order);
  const auto cost = cost_text(with_messages(order), stage, [&, P = P, M = M](const PipelineSimulation& run) {
    return fmt::format(
        "all ranks have nothing to do for {:.1f}% of the time, expected (P-1)/(M+P-1) = {:.1f}%",
        100 * run.bubble_of_total, 100.0 * (P - 1) / (M + P - 1));
  });
  const auto what =
      fmt::format("{}: {} before B{}, expected {}; {}; its order is {}", to_string(shape_of(order, stage)),
                  counted(it.found, "forward"), it.microbatch, it.expected, cost,
                  to_string(order.actions[static_cast<size_t>(stage)]));
  if (is_gpipe) {
    checker.fail("memory not bounded", what,
                 "That is GPipe: everything goes forward first, so that all M are kept. As soon as a stage's "
                 "first gradient can be there, let backwards alternate with forwards.");
  }
  if (it.microbatch > 0) {
    checker.fail("does not alternate", what,
                 "The warm-up is right. After it a forward and a backward alternate, until the forwards have "
                 "run out: each backward frees what the next forward needs.");
  }
  if (it.found > it.expected) {
    checker.fail(
        "warm up too long", what,
        "The first gradient can come back to stage s when its micro-batch has been through the P - 1 - s "
        "stages after it. So many forwards warm up, and then the next action is a forward, then a backward.");
  }
  checker.fail("warm up too short", what,
               "A stage waits for a gradient although it could send one more forward on its way. P - 1 - s "
               "forwards warm up stage s, or all M if there are fewer; then forward and backward alternate.");
}

bool is_gpipe(const PipelinePlan& order) {
  return std::all_of(order.actions.begin(), order.actions.end(), [](const std::vector<Action>& actions) {
    return std::is_partitioned(actions.begin(), actions.end(), is_forward);
  });
}

void judge_1f1b(Checker& checker, const std::vector<PipelinePlan>& orders) {
  for (const auto& order : orders) {
    const auto [P, M] = size_of(order);
    checker.in_world(P);
    expect_sound_1f1b(checker, order);
    for (int stage = 0; stage < P; ++stage) {
      const auto it = first_misplaced(
          order.actions[static_cast<size_t>(stage)], ActionKind::kBackward, {ActionKind::kForward},
          [&, P = P, M = M](int microbatch) { return std::min(M, P - stage + microbatch); });
      if (!it) continue;
      if (const auto plan = with_messages(order); &order == &orders[0] && verify_pipeline(plan).ok)
        picture(checker, "your order", plan);
      fail_misplaced(checker, order, stage, *it, std::all_of(orders.begin(), orders.end(), is_gpipe));
    }
  }
}

/// As `lockstep plan pipeline` prints it.
void note_sends(Checker& checker, const PipelinePlan& plan) {
  const auto verdict = verify_pipeline(plan);
  std::string text = fmt::format("your sends, {}:", to_string(size_of(plan)));
  for (const auto sends : lockstep::plan::kAllPipelineSends) {
    const auto& blocked = verdict.blocked[static_cast<size_t>(sends)];
    text += fmt::format("\n  {:14}  {}", lockstep::plan::name(sends),
                        blocked.empty() ? "completes" : "deadlock: " + describe(plan, blocked[0]));
  }
  checker.note(text);
}

void check_one_f_one_b(const Seam& seam, Checker& checker) {
  const auto orders = ask_orders(checker, "one_f_one_b", seam.one_f_one_b, filled_sizes(checker));
  judge_1f1b(checker, orders);
  judge_1f1b(checker, ask_orders(checker, "one_f_one_b", seam.one_f_one_b, short_sizes(checker)));
  const auto plan = with_messages(orders[0]);
  picture(checker, "your 1F1B", plan);
  note_sends(checker, plan);
  checker.proved("every stage runs 1F1B, for 1 to 8 stages, also with fewer micro-batches than stages");
  checker.proved("the same for stages and micro-batches drawn from the seed, above 8 and above 256");
  checker.proved("so stage s keeps at most min(M, P - s) activations, and the bubble is (P-1)/(M+P-1)");
  checker.proved("nobody waits for ever, even if the sends of one direction wait for their receive");
  checker.proved("every stage goes back in the order of the micro-batches: the same bits as with GPipe");
}

/// Fails if the order of `stage` is not that of the second task.
void expect_halves(Checker& checker, const PipelinePlan& order, int stage) {
  using enum ActionKind;
  const auto [P, M] = size_of(order);
  const auto& actions = order.actions[static_cast<size_t>(stage)];
  const auto what = [&, P = P, M = M](const std::string& others, const char* name, const Misplaced& it) {
    const auto cost = cost_text(with_messages(order), stage, [&](const PipelineSimulation& run) {
      return fmt::format("all stages together take {} cycles, expected 3M + P - 1 = {}", run.makespan,
                         3 * M + P - 1);
    });
    return fmt::format("{}: {} before {}{}, expected {}; {}; its order is {}",
                       to_string(shape_of(order, stage)), others, name, it.microbatch, it.expected, cost,
                       to_string(actions));
  };
  const auto input_grad = first_misplaced(actions, kInputGrad, {kForward}, [&, P = P, M = M](int microbatch) {
    return std::min(M, P - stage + microbatch);
  });
  if (input_grad)
    checker.fail(
        "not the order of 1F1B", what(counted(input_grad->found, "forward"), "I", *input_grad),
        "Forwards and input-grads keep the order that forwards and backwards have in your 1F1B. Only "
        "weight-grads are put in between.");
  const auto weight_grad =
      first_misplaced(actions, kWeightGrad, {kForward, kInputGrad}, [&, P = P, M = M](int microbatch) {
        return std::min(M, P + microbatch) + std::min(M, stage + microbatch + 1);
      });
  if (!weight_grad) return;
  if (weight_grad->found > weight_grad->expected)
    checker.fail(
        "weight gradients too late",
        what(fmt::format("{} forwards and input-grads", weight_grad->found), "W", *weight_grad),
        "The weight-grad of m comes right after the input-grad of m + s. What it needs stays in memory "
        "until it has run: stage s can put off s of them, since then it keeps P - s + s = P.");
  checker.fail(
      "weight gradients too soon",
      what(fmt::format("{} forwards and input-grads", weight_grad->found), "W", *weight_grad),
      "While a stage runs weight-grads, the stage before waits for its next input-grad. Stage s puts "
      "off s of them: the weight-grad of m comes right after the input-grad of m + s.");
}

void check_zero_bubble(const Seam& seam, Checker& checker) {
  const auto orders = ask_orders(checker, "zero_bubble", seam.zero_bubble, filled_sizes(checker));
  for (const auto& order : orders) {
    checker.in_world(order.shape.ranks);
    for (int stage = 0; stage < order.shape.ranks; ++stage) {
      auto shape = shape_of(order, stage);
      shape.splits_backward = true;
      const auto& actions = order.actions[static_cast<size_t>(stage)];
      if (const auto flaw = first_flaw(shape, actions)) {
        checker.expect(flaw->kind != Flaw::Kind::kOtherKind || flaw->action.kind != ActionKind::kBackward,
                       "backward not split", flaw->what,
                       "Here a backward is two actions: kInputGrad, for which the stage before waits, and "
                       "kWeightGrad, for which nobody does.");
        checker.expect(
            flaw->kind != Flaw::Kind::kNothing || &order != &orders[0], "no zero bubble yet", flaw->what,
            "Your 1F1B is right. Now the second task: take its list and split the backwards in it.");
        fail_for(checker, *flaw);
      }
      expect_in_order(checker, shape, actions);
      expect_halves(checker, order, stage);
    }
  }
  picture(checker, "your zero bubble", with_messages(orders[0]));
  checker.proved("with split backwards the time is 3M + P - 1 instead of 3M + 3(P - 1), in P activations");
}

void note_schedules(const Seam& seam, Checker& checker) {
  const std::vector<PipelineSize> sizes = {{4, 4}, {4, 8}, {4, 16}, {4, 32}};
  const auto own = ask_orders(checker, "one_f_one_b", seam.one_f_one_b, sizes);
  const auto halves = ask_orders(checker, "zero_bubble", seam.zero_bubble, sizes);
  std::string text =
      "4 stages: bubble and activations of stage 0 and 3\n  M        gpipe        1F1B  zero bubble";
  const auto cell = [](const PipelinePlan& plan) {
    const auto run = simulate_pipeline(plan);
    return fmt::format("{:.1f}% {:>2} {}", 100 * run.bubble_of_total, run.peak_activations.front(),
                       run.peak_activations.back());
  };
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto gpipe = lockstep::plan::make_pipeline_plan("gpipe", own[i].shape);
    text += fmt::format("\n{:3}  {:>11}  {:>10}  {:>11}", sizes[i].microbatches, cell(gpipe),
                        cell(with_messages(own[i])), cell(with_messages(halves[i])));
  }
  checker.note(text);
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_one_f_one_b(seam, checker);
  check_zero_bubble(seam, checker);
  note_schedules(seam, checker);
}

}  // namespace lab::onef1b
