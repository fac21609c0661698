#include "19_gpipe/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/schedules.h"
#include "lockstep/plan/pipeline_verify.h"

namespace lab::gpipe {

namespace {

using lockstep::plan::Action;
using lockstep::plan::ActionKind;
using lockstep::plan::PipelinePlan;
using lockstep::plan::PipelineSends;
using lockstep::plan::PipelineVerdict;

std::vector<PipelineSize> sizes(const Checker& checker) {
  std::vector<PipelineSize> all;
  for (const int stages : checker.worlds({4, 2, 3, 1, 5, 6, 7, 8})) {
    all.push_back({stages, 6});
    for (int microbatches = 1; microbatches <= 17; ++microbatches) {
      if (microbatches != 6) all.push_back({stages, microbatches});
    }
  }
  const auto fresh = fresh_sizes(checker, /*with_fewer=*/true);
  all.insert(all.end(), fresh.begin(), fresh.end());
  return all;
}

bool stops_and_waits(const std::vector<Action>& actions) {
  for (size_t i = 0; i + 1 < actions.size(); i += 2) {
    const bool is_pair = actions[i].kind == ActionKind::kForward &&
                         actions[i + 1].kind == ActionKind::kBackward &&
                         actions[i].microbatch == actions[i + 1].microbatch;
    if (!is_pair) return false;
  }
  return true;
}

/// All forwards before the first backward.
void expect_two_phases(Checker& checker, const PipelinePlan& order, int stage) {
  const auto& actions = order.actions[static_cast<size_t>(stage)];
  const bool has_two_phases = std::is_partitioned(actions.begin(), actions.end(), [](const Action& action) {
    return action.kind == ActionKind::kForward;
  });
  if (has_two_phases) return;
  const auto what = fmt::format("{}: its order is {}", to_string(shape_of(order, stage)), to_string(actions));
  if (stops_and_waits(actions)) {
    checker.fail(
        "stop and wait", what,
        "A stage that waits for the gradient of a micro-batch before it starts the next one lets the others "
        "wait, too. Send all forwards on their way first.");
  }
  checker.fail(
      "backward among forwards", what,
      "In GPipe all forwards come before the first backward. Other orders can be good schedules, too: "
      "lesson 20 asks for one.");
}

/// Micro-batches in the order in which a stage runs them, forward or back.
std::vector<int> microbatches_of(const std::vector<Action>& actions, ActionKind kind) {
  std::vector<int> order;
  for (const auto& action : actions) {
    if (action.kind == kind) order.push_back(action.microbatch);
  }
  return order;
}

/// Why a pipeline whose stages all run in two phases waits longer than it must.
[[noreturn]] void fail_for_waiting(Checker& checker, const PipelineSize& size, const PipelinePlan& order,
                                   const std::string& found) {
  for (size_t stage = 1; stage < order.actions.size(); ++stage) {
    for (const auto kind : {ActionKind::kForward, ActionKind::kBackward}) {
      checker.expect(microbatches_of(order.actions[stage], kind) == microbatches_of(order.actions[0], kind),
                     "orders differ",
                     fmt::format("{}: {}; stage 0 runs {}, stage {} runs {}", to_string(size), found,
                                 to_string(order.actions[0]), stage, to_string(order.actions[stage])),
                     "If a stage takes the micro-batches in another order than its neighbours, it waits for "
                     "one that they run later. Use the same order on all stages.");
    }
  }
  checker.fail("bubble too large",
               fmt::format("{}: {}; stage 0 runs {}", to_string(size), found, to_string(order.actions[0])),
               "Somewhere a rank waits for a micro-batch that its neighbour runs much later.");
}

/// Ranks wait no longer than the formula says, however long a backward takes, and not for ever.
void expect_bubble(Checker& checker, const PipelineSize& size, const PipelinePlan& order,
                   const PipelinePlan& plan, const PipelineVerdict& verdict) {
  if (!verdict.ok) fail_for_waiting(checker, size, order, verdict.problem);
  const double expected = static_cast<double>(size.stages - 1) / (size.microbatches + size.stages - 1);
  for (const double backward : {2.0, 1.0, 3.5}) {
    const auto simulation = simulate_pipeline(
        plan, {.ranks = {{.input_grad = backward / 2, .weight_grad = backward / 2}}, .message = 0});
    if (std::abs(simulation.bubble_of_total - expected) < 1e-12) continue;
    fail_for_waiting(
        checker, size, order,
        fmt::format("ranks have nothing to do for {:.1f}% of the time, expected (P-1)/(M+P-1) = {:.1f}%",
                    100 * simulation.bubble_of_total, 100 * expected));
  }
  if (!verdict.completes(PipelineSends::kBlocking))
    fail_for_waiting(checker, size, order, "it hangs if a send waits for its receive");
}

/// Every stage runs everything, after what it needs, and waits no longer than it must.
void check_order(const Seam& seam, Checker& checker) {
  const auto asked = sizes(checker);
  const auto orders = ask_orders(checker, "gpipe", seam.gpipe, asked);
  for (size_t i = 0; i < asked.size(); ++i) {
    checker.in_world(asked[i].stages);
    expect_sound(checker, orders[i]);
    const auto plan = with_messages(orders[i]);
    const auto verdict = verify_pipeline(plan);
    if (i == 0 && verdict.ok) picture(checker, "your order", plan);
    for (int stage = 0; stage < asked[i].stages; ++stage) expect_two_phases(checker, orders[i], stage);
    expect_bubble(checker, asked[i], orders[i], plan, verdict);
  }
  checker.proved("every stage runs every micro-batch forward and back once, after what it needs");
  checker.proved("nobody waits for ever, even if a send waits for its receive");
  checker.proved("the bubble is (P-1)/(M+P-1) of the time, for 1 to 8 stages and 1 to 17 micro-batches");
  checker.proved("the same for stages and micro-batches drawn from the seed, above 8 and above 256");
}

void note_bubbles(const Seam& seam, Checker& checker) {
  std::string text =
      "4 stages: more micro-batches, less bubble, more memory\n  M   bubble  utilisation  activations";
  for (const auto& order :
       ask_orders(checker, "gpipe", seam.gpipe, {{4, 1}, {4, 2}, {4, 4}, {4, 8}, {4, 16}, {4, 32}})) {
    const auto simulation = simulate_pipeline(with_messages(order));
    text += fmt::format("\n{:3}   {:5.1f}%       {:5.1f}%  {:11}", order.shape.microbatches,
                        100 * simulation.bubble_of_total, 100 * simulation.utilisation[0],
                        simulation.peak_activations[0]);
  }
  checker.note(text);
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_split(seam, checker);
  check_order(seam, checker);
  note_bubbles(seam, checker);
}

}  // namespace lab::gpipe
