#include "lockstep/plan/pipeline_verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/plan/pipeline_text.h"
#include "plan/pipeline_reference.h"
#include "plan/pipeline_shapes.h"

namespace lockstep::plan {
namespace {

using enum PipelineSends;
using testing::HasSubstr;

class EveryPipeline : public testing::TestWithParam<Schedule> {};

TEST_P(EveryPipeline, IsProvedForEveryShape) {
  int plans = 0;
  for (const auto& shape : shapes_of(GetParam(), 8, 20)) {
    const PipelineVerdict verdict = verify_pipeline(make_pipeline_plan(GetParam().name, shape));
    ASSERT_TRUE(verdict.ok) << shape_text(shape) << ": " << verdict.problem;
    ASSERT_TRUE(verdict.completes(kAsync));
    ++plans;
  }
  EXPECT_GE(plans, 100);
  RecordProperty("plans", plans);
}

TEST_P(EveryPipeline, GivesTheGradientsOfOneProcessWheneverItCompletes) {
  for (const auto& shape : shapes_of(GetParam(), 4, 9)) {
    const PipelinePlan plan = make_pipeline_plan(GetParam().name, shape);
    const PipelineVerdict verdict = verify_pipeline(plan);
    for (const auto sends : kAllPipelineSends) {
      ASSERT_EQ(reference::fault_of(plan, sends, 1), verdict.completes(sends) ? "" : "deadlock")
          << shape_text(shape) << ", " << name(sends);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pipelines, EveryPipeline, testing::ValuesIn(schedules()),
                         [](const auto& test) { return test_name(test.param); });

TEST(PipelineDeadlock, IsToldForEachKindOfSends) {
  struct Row {
    std::string_view schedule;
    bool blocking, one_async, both_async;
  };
  constexpr Row kTable[] = {{"naive", true, true, true},  {"gpipe", true, true, true},
                            {"1f1b", false, true, true},  {"zb-h1", false, true, true},
                            {"zb-h2", false, true, true}, {"interleaved", false, false, true}};
  int cells = 0;
  for (const auto& row : kTable) {
    for (const int ranks : {2, 3, 4, 8}) {
      for (const int rounds : {1, 2, 4}) {
        for (const int chunks : {1, 2, 3}) {
          const PipelineShape shape{.ranks = ranks, .microbatches = rounds * ranks, .chunks = chunks};
          if (!why_not(find_schedule(row.schedule), shape).empty()) continue;
          const PipelineVerdict verdict = verify_pipeline(make_pipeline_plan(row.schedule, shape));
          EXPECT_EQ(verdict.completes(kBlocking), row.blocking) << row.schedule << ": " << shape_text(shape);
          EXPECT_EQ(verdict.completes(kForwardAsync), row.one_async)
              << row.schedule << ": " << shape_text(shape);
          EXPECT_EQ(verdict.completes(kBackwardAsync), row.one_async)
              << row.schedule << ": " << shape_text(shape);
          EXPECT_EQ(verdict.completes(kAsync), row.both_async) << row.schedule << ": " << shape_text(shape);
          ++cells;
        }
      }
    }
  }
  EXPECT_EQ(cells, 4 * 12 + 8 + 24) << "zb-h2 has no plan for as many micro-batches as ranks";
}

TEST(PipelineDeadlock, NamesWhoWaitsInWhatForWhom) {
  const PipelinePlan plan = make_pipeline_plan("1f1b", {.ranks = 2, .microbatches = 2});
  const PipelineVerdict verdict = verify_pipeline(plan);
  const auto& blocked = verdict.blocked[static_cast<size_t>(kBlocking)];
  ASSERT_EQ(blocked.size(), 2U);
  EXPECT_EQ(describe(plan, blocked[0]), "rank 0 waits in action 3 (0SEND_F1) for rank 1");
  EXPECT_EQ(describe(plan, blocked[1]), "rank 1 waits in action 3 (1SEND_B0) for rank 0");
}

TEST(PipelineDeadlock, WithoutAnySendThatWaitsIsRefused) {
  const PipelineVerdict verdict =
      verify_pipeline(parse_pipeline("pipeline mine ranks 2 microbatches 2 chunks 1\n"
                                     "rank 0\n 0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1\n"
                                     "rank 1\n 1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1\n"));
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(
      verdict.problem,
      "deadlock: rank 0 waits in action 2 (0RECV_B0) for rank 1, rank 1 waits in action 2 (1RECV_F1) for "
      "rank 0");
  EXPECT_FALSE(verdict.completes(kAsync));
  EXPECT_EQ(verdict.blocked[static_cast<size_t>(kAsync)].size(), 2U);
}

TEST(PipelineVerdict, TellsThePeakOfLiveActivations) {
  const auto peaks = [](std::string_view schedule, const PipelineShape& shape) {
    return verify_pipeline(make_pipeline_plan(schedule, shape)).peak_activations;
  };
  using Peaks = std::vector<double>;
  EXPECT_EQ(peaks("naive", {.ranks = 3, .microbatches = 6}), (Peaks{1, 1, 1}));
  EXPECT_EQ(peaks("gpipe", {.ranks = 3, .microbatches = 6}), (Peaks{6, 6, 6}));
  EXPECT_EQ(peaks("1f1b", {.ranks = 3, .microbatches = 6}), (Peaks{3, 2, 1}));
  EXPECT_EQ(peaks("interleaved", {.ranks = 2, .microbatches = 4, .chunks = 2}), (Peaks{2.5, 1.5}));
  EXPECT_EQ(peaks("zb-h1", {.ranks = 3, .microbatches = 6}), (Peaks{3, 3, 3}));
}

/// The verifier's words for a plan of two ranks and one micro-batch whose ranks do this.
std::string problem(const std::string& rank_0, const std::string& rank_1) {
  return verify_pipeline(parse_pipeline("pipeline mine ranks 2 microbatches 1 chunks 1\nrank 0\n" + rank_0 +
                                        "\nrank 1\n" + rank_1))
      .problem;
}

TEST(PipelineVerdict, NamesRankActionAndReason) {
  const std::string first = "0F0 0SEND_F0 0RECV_B0 0B0";
  const std::string last = "1RECV_F0 1F0 1B0 1SEND_B0";
  ASSERT_EQ(problem(first, last), "");
  EXPECT_EQ(problem("0F0 0SEND_F0 0RECV_B0 0I0 0W0", last), "");
  EXPECT_EQ(problem(first, "1F0 1B0 1SEND_B0"), "rank 1 action 0 (1F0): its input has not arrived");
  EXPECT_EQ(problem("0F0 0SEND_F0 0B0", last), "rank 0 action 2 (0B0): its gradient has not arrived");
  EXPECT_EQ(problem("0SEND_F0 0F0 0RECV_B0 0B0", last),
            "rank 0 action 0 (0SEND_F0): its forward has not run");
  EXPECT_EQ(problem(first, "1RECV_F0 1F0 1SEND_B0 1B0"),
            "rank 1 action 2 (1SEND_B0): its backward has not run");
  EXPECT_EQ(problem("0F0 0F0 0SEND_F0 0RECV_B0 0B0", last), "rank 0 action 1 (0F0): is there a second time");
  EXPECT_EQ(problem("0F0 0SEND_F0 0RECV_B0 0B0 0I0 0W0", last),
            "rank 0 action 4 (0I0): has gone back already");
  EXPECT_EQ(problem("0F0 0SEND_F0 0RECV_B0 0B0 0W0", last),
            "rank 0 action 4 (0W0): its input-grad has not run");
  EXPECT_EQ(problem("0F0 0SEND_F0 0RECV_B0 0I0", last), "rank 0 ends without 0W0");
  EXPECT_EQ(problem("0F0 0RECV_B0 0B0", last), "rank 0 ends without 0SEND_F0");
  EXPECT_EQ(problem("", last), "rank 0 ends without 0F0");
  EXPECT_EQ(problem("2F0", last), "rank 0 action 0 (2F0): there is no stage 2 of 2");
  EXPECT_EQ(problem("1F0", last), "rank 0 action 0 (1F0): stage 1 is on rank 1");
  EXPECT_EQ(problem("0F1", last), "rank 0 action 0 (0F1): there is no micro-batch 1 of 1");
  EXPECT_EQ(problem("0RECV_F0", last), "rank 0 action 0 (0RECV_F0): there is no other rank for it");
}

TEST(PipelineVerdict, NamesBothEndsOfAMessageThatIsMistaken) {
  const PipelineVerdict verdict =
      verify_pipeline(parse_pipeline("pipeline mine ranks 2 microbatches 2 chunks 1\n"
                                     "rank 0\n 0F0 0F1 0SEND_F1 0SEND_F0 0RECV_B0 0B0 0RECV_B1 0B1\n"
                                     "rank 1\n 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1\n"));
  EXPECT_EQ(verdict.problem, "rank 1 action 0 (1RECV_F0): gets 0SEND_F1, which rank 0 sends in action 2");
}

TEST(PipelineVerdict, KnowsStagesOfOneRank) {
  const std::string header = "pipeline mine ranks 1 microbatches 1 chunks 2\nrank 0\n";
  EXPECT_EQ(verify_pipeline(parse_pipeline(header + "0F0 1F0 1B0 0B0")).problem, "");
  EXPECT_EQ(verify_pipeline(parse_pipeline(header + "1F0 0F0 1B0 0B0")).problem,
            "rank 0 action 0 (1F0): stage 0 has not run forward");
  EXPECT_EQ(verify_pipeline(parse_pipeline(header + "0F0 1F0 0B0 1B0")).problem,
            "rank 0 action 2 (0B0): stage 1 has not run backward");
}

TEST(PipelineVerdict, NeverThrows) {
  constexpr int kHuge = std::numeric_limits<int>::max();
  for (const int ranks : {-1, 0, 1, 2, kHuge}) {
    for (const int microbatches : {-1, 0, 1, kHuge}) {
      for (const int chunks : {-1, 0, 1, kHuge}) {
        for (const int number : {-kHuge - 1, -1, 0, 7, kHuge}) {
          const PipelinePlan plan{.schedule = "",
                                  .shape = {ranks, microbatches, chunks},
                                  .actions = {{{ActionKind::kSendForward, number, number}}}};
          PipelineVerdict verdict;
          ASSERT_NO_THROW(verdict = verify_pipeline(plan));
          ASSERT_FALSE(verdict.ok);
          ASSERT_NE(verdict.problem, "");
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::plan
