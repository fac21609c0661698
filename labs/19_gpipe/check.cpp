#include "19_gpipe/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lab/schedules.h"
#include "lockstep/plan/pipeline_grid.h"
#include "lockstep/plan/pipeline_verify.h"

namespace lab::gpipe {

namespace {

using lockstep::plan::Action;
using lockstep::plan::ActionKind;
using lockstep::plan::PipelinePlan;
using lockstep::plan::PipelineSends;

struct Batch {
  size_t samples;
  int microbatches;
};

std::vector<Batch> batches(const Checker& checker) {
  std::vector<Batch> all = {{8, 4}, {10, 4}, {7, 3}, {32, 8}, {1, 1}, {5, 5}, {100, 7}};
  for (uint64_t i = 0; i < 5; ++i) {
    const int microbatches = static_cast<int>(1 + checker.draw(2 * i) % 9);
    all.push_back({static_cast<size_t>(microbatches) + checker.draw(2 * i + 1) % 50, microbatches});
  }
  return all;
}

/// Samples 0, 1, 2, ...
std::vector<float> numbered(size_t samples) {
  std::vector<float> batch(samples);
  std::iota(batch.begin(), batch.end(), 0.0F);
  return batch;
}

std::string sizes_text(const MicroBatches& parts) {
  std::string text;
  for (const auto& part : parts) text += fmt::format("{}{}", text.empty() ? "" : " ", part.size());
  return text.empty() ? "none" : text;
}

/// Every sample in one micro-batch, in order, as evenly as can be.
void check_split(const Seam& seam, Checker& checker) {
  for (const auto& [samples, microbatches] : batches(checker)) {
    const auto batch = numbered(samples);
    tell_progress(fmt::format("split_batch of {} samples into {}", samples, microbatches));
    const auto parts = seam.split_batch(batch, microbatches);
    const auto asked = fmt::format("{} samples in {} micro-batches", samples, microbatches);
    const auto found = fmt::format("{}: sizes are {}", asked, sizes_text(parts));
    checker.expect(
        parts.size() != 1 || microbatches == 1, "not split",
        fmt::format("{}: one slice came back, with {} samples", asked, parts.empty() ? 0 : parts[0].size()),
        "Stage 1 cannot start before stage 0 is done with something. Cut the batch, so that it is done "
        "with the first part soon.");
    checker.expect(
        parts.size() == static_cast<size_t>(microbatches), "wrong number of microbatches",
        fmt::format("{}, that is {} of them", found, parts.size()),
        "As many slices as were asked for: where the samples do not divide, some slices are one longer, "
        "and none is added.");
    size_t next = 0;
    for (size_t m = 0; m < parts.size(); ++m) {
      for (const float sample : parts[m]) {
        checker.expect(next < samples && sample == batch[next], "samples out of order",
                       fmt::format("{}; micro-batch {} has sample {} where {} comes next", found, m, sample,
                                   next < samples ? fmt::format("sample {}", next) : "none"),
                       "Each slice begins where the one before it ended.");
        ++next;
      }
    }
    checker.expect(
        next == samples, "tail dropped",
        fmt::format("{}; the last {} of {} samples are in no micro-batch", found, samples - next, samples),
        "samples / M is rounded down. The remainder, samples % M, must go somewhere: give one more to "
        "that many micro-batches.");
    const auto [least, most] = std::minmax_element(
        parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    checker.expect(
        most->size() - least->size() <= 1, least->empty() ? "empty microbatch" : "uneven split", found,
        "All stages wait for the longest micro-batch. Sizes differ by one at most: the first samples % M "
        "have one more.");
  }
  checker.proved("every sample is in one micro-batch, and their sizes differ by one at most");
}

/// Means of micro-batches, weighted, are the mean of the batch.
void check_weights(const Seam& seam, Checker& checker) {
  for (const auto& [samples, microbatches] : batches(checker)) {
    const auto batch = numbered(samples);
    const auto parts = seam.split_batch(batch, microbatches);
    tell_progress(fmt::format("loss_weights of {} micro-batches", microbatches));
    const auto weights = seam.loss_weights(parts);
    checker.expect(weights.size() == parts.size(), "wrong number of weights",
                   fmt::format("{} micro-batches, {} weights", parts.size(), weights.size()),
                   "One weight for each micro-batch.");
    // A sample's gradient is its number squared: exact sums, and no two alike.
    const auto gradient = [](double sum, float sample) { return sum + static_cast<double>(sample) * sample; };
    double found = 0;
    for (size_t m = 0; m < parts.size(); ++m) {
      const double mean = std::accumulate(parts[m].begin(), parts[m].end(), 0.0, gradient) /
                          static_cast<double>(parts[m].size());
      found += weights[m] * mean;
    }
    const double expected =
        std::accumulate(batch.begin(), batch.end(), 0.0, gradient) / static_cast<double>(samples);
    if (std::abs(found - expected) <= 1e-9 * expected) continue;
    const auto what =
        fmt::format("{} samples, sizes {}: the gradient is {:.6g}, that of the whole batch {:.6g}", samples,
                    sizes_text(parts), found, expected);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (!(std::abs(sum - 1) < 1e-9)) {
      checker.fail(
          "weights do not add up", fmt::format("{}; the weights add up to {:.4g}", what, sum),
          sum == 0 ? "Integers divide to an integer: 3 / 10 is 0. Make both numbers double first."
                   : "Gradients of all micro-batches are added. If each counts fully, their sum is M times "
                     "too large: together the weights must be 1.");
    }
    checker.fail(
        "means not weighted", what,
        "A mean over 3 samples stands for more than one over 2. A micro-batch counts by its samples: "
        "size / samples of the batch, which is 1 / M only where all are equally long.");
  }
  checker.proved("weighted by their samples, micro-batches give the gradient of the whole batch");
}

/// Asks for all stages' actions; refuses what is no order at all.
PipelinePlan ask(const Seam& seam, Checker& checker, int stages, int microbatches) {
  PipelinePlan plan{
      .schedule = "yours", .shape = {.ranks = stages, .microbatches = microbatches}, .actions = {}};
  for (int stage = 0; stage < stages; ++stage) {
    const StageShape shape{.stage = stage, .stages = stages, .microbatches = microbatches};
    tell_progress(to_string(shape));
    plan.actions.push_back(seam.gpipe(stage, stages, microbatches));
    if (const auto flaw = first_flaw(shape, plan.actions.back())) fail_for(checker, *flaw);
  }
  return plan;
}

bool stops_and_waits(const PipelinePlan& plan) {
  for (const auto& actions : plan.actions) {
    for (size_t i = 0; i + 1 < actions.size(); i += 2) {
      const bool is_pair = actions[i].kind == ActionKind::kForward &&
                           actions[i + 1].kind == ActionKind::kBackward &&
                           actions[i].microbatch == actions[i + 1].microbatch;
      if (!is_pair) return false;
    }
  }
  return true;
}

std::vector<int> worlds(const Checker& checker) {
  return checker.worlds({4, 2, 3, 1, 5, 8});
}

/// The run to look at: the first one, unless it is too large to see anything.
bool is_shown(const Checker& checker, int stages, int microbatches) {
  return stages == worlds(checker).front() && stages <= 16 && microbatches == 6;
}

void check_bubble(Checker& checker, const PipelinePlan& order, const PipelinePlan& plan) {
  const int P = plan.shape.ranks, M = plan.shape.microbatches;
  const double expected = static_cast<double>(P - 1) / (M + P - 1);
  for (const double backward : {2.0, 1.0, 3.5}) {
    const auto simulation = simulate_pipeline(
        plan, {.ranks = {{.input_grad = backward / 2, .weight_grad = backward / 2}}, .message = 0});
    const double found = simulation.bubble_of_total;
    if (backward == 2 && is_shown(checker, P, M)) checker.show(to_report(plan, simulation));
    if (std::abs(found - expected) < 1e-12) continue;
    const auto what = fmt::format(
        "{} stages, {} micro-batches: ranks have nothing to do for {:.1f}% of the time, expected "
        "(P-1)/(M+P-1) = {:.1f}%; the order of stage 0 is {}",
        P, M, 100 * found, 100 * expected, to_string(order.actions[0]));
    if (stops_and_waits(order)) {
      checker.fail(
          "stop and wait", what,
          "A stage that waits for the gradient of a micro-batch before it starts the next one lets the "
          "others wait, too. Send all forwards on their way first.");
    }
    checker.fail(
        "bubble too large", what,
        "Somewhere a rank waits for a micro-batch that its neighbour runs much later. All stages must take "
        "the micro-batches in the same order, all forwards before the first backward.");
  }
}

void check_order(const Seam& seam, Checker& checker) {
  for (const int stages : worlds(checker)) {
    checker.in_world(stages);
    for (const int microbatches : {6, 8, 4, 1, 2, 3, 17}) {
      const auto order = ask(seam, checker, stages, microbatches);
      const auto plan = with_messages(order);
      const auto verdict = verify_pipeline(plan);
      checker.expect(
          verdict.ok, "deadlock",
          fmt::format("{} stages, {} micro-batches: {}", stages, microbatches, verdict.problem),
          "Two stages wait for each other: one needs a gradient that the next stage makes only after "
          "another forward. Do all stages run all forwards first?");
      check_bubble(checker, order, plan);
      for (int stage = 0; stage < stages; ++stage) {
        const auto& actions = order.actions[static_cast<size_t>(stage)];
        const auto first_back = std::find_if(actions.begin(), actions.end(), [](const Action& action) {
          return action.kind == ActionKind::kBackward;
        });
        checker.expect(
            std::none_of(first_back, actions.end(),
                         [](const Action& action) { return action.kind == ActionKind::kForward; }),
            "backward among forwards",
            fmt::format("stage {} of {} runs {}", stage, stages, to_string(actions)),
            "That is a fine schedule, but not GPipe: here all forwards come before the first backward. "
            "Keep it for lesson 20.");
      }
      checker.expect(
          verdict.completes(PipelineSends::kBlocking), "deadlock",
          fmt::format("{} stages, {} micro-batches: with sends that wait for their receive it hangs", stages,
                      microbatches),
          "Messages must be asked for in the order in which they are sent: do all stages take the "
          "micro-batches in the same order?");
      if (is_shown(checker, stages, microbatches)) {
        auto grid = pipeline_grid(plan);
        grid.pop_back();  // the last line's end
        checker.note("your order; a column is a clock cycle\n" + grid);
      }
    }
  }
  checker.proved("every stage runs every micro-batch forward and back once, after what it needs");
  checker.proved("nobody waits for ever, even if a send waits for its receive");
  checker.proved("the bubble is (P-1)/(M+P-1) of the time, for 1 to 8 stages and 1 to 17 micro-batches");
}

void tell_bubbles(const Seam& seam, Checker& checker) {
  const int stages = 4;
  std::string text =
      "4 stages: more micro-batches, less bubble, more memory\n  M   bubble  utilisation  activations";
  for (const int microbatches : {1, 2, 4, 8, 16, 32}) {
    const auto simulation = simulate_pipeline(with_messages(ask(seam, checker, stages, microbatches)));
    text +=
        fmt::format("\n{:3}   {:5.1f}%       {:5.1f}%  {:11}", microbatches, 100 * simulation.bubble_of_total,
                    100 * simulation.utilisation[0], simulation.peak_activations[0]);
  }
  checker.note(text);
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_split(seam, checker);
  check_weights(seam, checker);
  check_order(seam, checker);
  tell_bubbles(seam, checker);
}

}  // namespace lab::gpipe
