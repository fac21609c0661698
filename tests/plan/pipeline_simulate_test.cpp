#include "lockstep/plan/pipeline_simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "lockstep/error.h"
#include "plan/pipeline_shapes.h"
#include "support/refusal.h"

namespace lockstep::plan {
namespace {

using enum ActionKind;
using testing::HasSubstr;

/// Whole numbers, so that sums are exact; each of F, I, W and of their differences is the largest in some.
constexpr RankCosts kCosts[] = {{1, 1, 1}, {1, 2, 3}, {3, 1, 2}, {2, 3, 1}, {1, 1, 2},
                                {4, 1, 1}, {1, 4, 1}, {1, 1, 5}, {5, 2, 3}, {7, 0, 0}};

double total(const RankCosts& costs) {
  return costs.forward + costs.input_grad + costs.weight_grad;
}

/// The published bubble; for interleaved only where P divides M.
double formula_bubble(std::string_view schedule, const PipelineShape& shape, const RankCosts& costs) {
  const auto [f, i, w, memory, weight_memory] = costs;
  const double others = shape.ranks - 1;
  if (schedule == "naive") return others * shape.microbatches * total(costs);
  if (schedule == "interleaved") return others * total(costs) / shape.chunks;
  if (schedule == "zb-h1") return others * std::max({f, i, f + i - w});
  if (schedule == "zb-h2") return others * std::max({f, i - f, f + i - 2 * w});
  return others * total(costs);
}

class SimulatedPipeline : public testing::TestWithParam<Schedule> {};

TEST_P(SimulatedPipeline, TakesExactlyTheTimeOfTheFormula) {
  int cells = 0;
  for (const auto& shape : shapes_of(GetParam(), 8, 24)) {
    if (GetParam().name == "interleaved" && shape.microbatches % shape.ranks != 0) continue;
    const PipelinePlan plan = make_pipeline_plan(GetParam().name, shape);
    for (const auto& costs : kCosts) {
      const PipelineSimulation simulation = simulate_pipeline(plan, {.ranks = {costs}});
      const double bubble = formula_bubble(GetParam().name, shape, costs);
      const double ideal = shape.microbatches * total(costs);
      ASSERT_EQ(simulation.bubble, bubble) << shape_text(shape);
      ASSERT_DOUBLE_EQ(simulation.makespan, ideal + bubble) << shape_text(shape);
      ASSERT_DOUBLE_EQ(simulation.bubble_of_total, bubble / (ideal + bubble)) << shape_text(shape);
      ASSERT_DOUBLE_EQ(simulation.bubble_of_ideal, bubble / ideal) << shape_text(shape);
      for (const double busy : simulation.utilisation) {
        ASSERT_DOUBLE_EQ(busy, ideal / (ideal + bubble)) << shape_text(shape);
      }
      ++cells;
    }
  }
  EXPECT_GE(cells, 1000);
  RecordProperty("cells", cells);
}

/// The published peak of a rank.
double formula_peak(std::string_view schedule, const PipelineShape& shape, int rank, const RankCosts& costs) {
  const int ranks = shape.ranks;
  if (schedule == "naive") return costs.activation;
  if (schedule == "gpipe") return shape.microbatches * costs.activation;
  if (schedule == "1f1b") return std::min(shape.microbatches, ranks - rank) * costs.activation;
  if (schedule == "zb-h1") return (ranks - rank) * costs.activation + rank * costs.weight_input;
  if (schedule == "zb-h2") {
    return (2 * (ranks - rank) - 1) * costs.activation + 2 * rank * costs.weight_input;
  }
  const int all = shape.microbatches * shape.chunks;
  const int steady = (shape.chunks - 1) * ranks + 2 * (ranks - 1 - rank) + 1;
  return std::min(all, steady) * costs.activation / shape.chunks;
}

TEST_P(SimulatedPipeline, HoldsExactlyTheMemoryOfTheFormula) {
  for (const auto& shape : shapes_of(GetParam(), 8, 24)) {
    if (GetParam().name == "interleaved" && shape.microbatches % shape.ranks != 0) continue;
    const PipelinePlan plan = make_pipeline_plan(GetParam().name, shape);
    for (const auto& [activation, weight_input] :
         std::vector<std::pair<double, double>>{{1, 1}, {2, 1}, {3, 2}, {5, 0}}) {
      const RankCosts costs{.activation = activation, .weight_input = weight_input};
      const auto peaks = simulate_pipeline(plan, {.ranks = {costs}}).peak_activations;
      for (int rank = 0; rank < shape.ranks; ++rank) {
        ASSERT_EQ(peaks[static_cast<size_t>(rank)], formula_peak(GetParam().name, shape, rank, costs))
            << shape_text(shape) << ", rank " << rank;
      }
    }
  }
}

TEST_P(SimulatedPipeline, RunsNothingBeforeWhatItNeedsNorTwoThingsAtOnce) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> any(0, 3);
  for (const auto& shape : shapes_of(GetParam(), 5, 9)) {
    const PipelinePlan plan = make_pipeline_plan(GetParam().name, shape);
    PipelineCosts costs{.ranks = {}, .message = any(random)};
    for (int rank = 0; rank < shape.ranks; ++rank)
      costs.ranks.push_back({any(random), any(random), any(random)});
    const PipelineSimulation simulation = simulate_pipeline(plan, costs);
    std::map<std::tuple<ActionKind, int, int>, ActionSpan> spans;
    for (size_t rank = 0; rank < plan.actions.size(); ++rank) {
      double before = 0;
      for (size_t i = 0; i < plan.actions[rank].size(); ++i) {
        const Action& action = plan.actions[rank][i];
        const ActionSpan& span = simulation.actions[rank][i];
        ASSERT_EQ(span.start, before) << "a rank is never idle but in a receive";
        ASSERT_GE(span.end, span.start);
        before = span.end;
        spans[{action.kind == kInputGrad ? kBackward : action.kind, action.stage, action.microbatch}] = span;
      }
      ASSERT_LE(before, simulation.makespan);
    }
    for (const auto& [key, span] : spans) {
      const auto& [kind, stage, microbatch] = key;
      const bool far = shape.ranks > 1;
      const double late = (far ? costs.message : 0) - 1e-9;
      if (kind == kForward && stage > 0) {
        ASSERT_GE(span.start, (spans[{kForward, stage - 1, microbatch}].end + late));
      }
      if (kind == kBackward) {
        ASSERT_GE(span.start, (spans[{kForward, stage, microbatch}].end));
        if (stage + 1 < shape.stages()) {
          ASSERT_GE(span.start, (spans[{kBackward, stage + 1, microbatch}].end + late));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pipelines, SimulatedPipeline, testing::ValuesIn(schedules()),
                         [](const auto& test) { return test_name(test.param); });

TEST(SimulatePipeline, CountsMessagesWhereTheyCannotHide) {
  for (const int ranks : {1, 2, 5}) {
    for (const int microbatches : {1, 4, 7}) {
      const PipelineShape shape{.ranks = ranks, .microbatches = microbatches};
      const PipelineCosts costs{.ranks = {{2, 3, 4}}, .message = 0.5};
      EXPECT_EQ(simulate_pipeline(make_pipeline_plan("naive", shape), costs).makespan,
                microbatches * (ranks * 9 + 2 * (ranks - 1) * 0.5));
      EXPECT_EQ(simulate_pipeline(make_pipeline_plan("gpipe", shape), costs).makespan,
                (microbatches + ranks - 1) * 9 + 2 * (ranks - 1) * 0.5)
          << "only the first to come and the last to go are waited for";
    }
  }
}

TEST(SimulatePipeline, TakesTheCostsOfEachRank) {
  const PipelineCosts costs{.ranks = {{1, 1, 1}, {2, 3, 4}, {1, 0, 1}}};
  const auto simulation =
      simulate_pipeline(make_pipeline_plan("naive", {.ranks = 3, .microbatches = 4}), costs);
  EXPECT_EQ(simulation.makespan, 4 * (3 + 9 + 2));
  EXPECT_EQ(simulation.bubble, 4 * (3 + 2)) << "over what the busiest rank has to do";
  EXPECT_DOUBLE_EQ(simulation.utilisation[1], 9.0 / 14);
  EXPECT_DOUBLE_EQ(simulation.utilisation[2], 2.0 / 14);
}

TEST(SimulatePipeline, InterleavesAnyNumberOfMicroBatchesWithLittleMoreBubble) {
  for (const auto& shape : shapes_of(find_schedule("interleaved"), 8, 40)) {
    if (shape.microbatches < shape.ranks) continue;
    const auto simulation = simulate_pipeline(make_pipeline_plan("interleaved", shape));
    const double bubble = formula_bubble("interleaved", shape, {});
    ASSERT_GE(simulation.bubble, bubble - 1e-9) << shape_text(shape);
    ASSERT_LE(simulation.bubble, 2 * bubble + 1e-9) << shape_text(shape);
  }
}

TEST(SimulatePipeline, OfNoCostsDividesByNothing) {
  const auto simulation =
      simulate_pipeline(make_pipeline_plan("1f1b", {.ranks = 2, .microbatches = 2}), {.ranks = {{0, 0, 0}}});
  EXPECT_EQ(simulation.makespan, 0);
  EXPECT_EQ(simulation.bubble_of_total, 0);
  EXPECT_EQ(simulation.bubble_of_ideal, 0);
  EXPECT_EQ(simulation.utilisation[0], 0);
}

std::string refusal(const PipelinePlan& plan, const PipelineCosts& costs) {
  return test::refusal_of([&] { simulate_pipeline(plan, costs); });
}

TEST(SimulatePipeline, RefusesCostsAndPlansThatCannotBe) {
  PipelinePlan plan = make_pipeline_plan("1f1b", {.ranks = 3, .microbatches = 2});
  EXPECT_EQ(refusal(plan, {.ranks = {{}, {}}}),
            "simulate: costs of 2 ranks for a plan of 3; hint: give one for all, or one for each");
  EXPECT_EQ(refusal(plan, {.ranks = {}}),
            "simulate: costs of 0 ranks for a plan of 3; hint: give one for all, or one for each");
  EXPECT_EQ(refusal(plan, {.ranks = {{.input_grad = -1}}}),
            "simulate: input-grad -1; hint: give a number, 0 or above");
  EXPECT_THAT(refusal(plan, {.message = std::nan("")}), HasSubstr("message nan"));
  EXPECT_THAT(refusal(plan, {.ranks = {{.forward = std::numeric_limits<double>::infinity()}}}),
              HasSubstr("forward inf"));
  plan.actions[1].pop_back();
  EXPECT_EQ(refusal(plan, {}), "simulate: rank 1 ends without 1SEND_B1");
}

}  // namespace
}  // namespace lockstep::plan
