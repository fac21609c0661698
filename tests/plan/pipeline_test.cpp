// Which plans there are, which there are not, and where their messages stand.
#include "lockstep/plan/pipeline.h"
#include "support/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/error.h"
#include "lockstep/plan/pipeline_text.h"
#include "lockstep/plan/pipeline_verify.h"
#include "plan/pipeline_shapes.h"

namespace lockstep::plan {
namespace {

using enum ActionKind;
using testing::ElementsAre;
using testing::HasSubstr;

/// The computation of a rank: `F0 F1 B0 ...`, with stages where there are chunks.
std::string computation(const PipelinePlan& plan, size_t rank) {
  std::string text;
  for (const auto& action : plan.actions[rank]) {
    if (!action.is_compute()) continue;
    const std::string word = to_string(action);
    const size_t stage_digits = plan.shape.chunks > 1 ? 0 : word.find_first_not_of("0123456789");
    text += (text.empty() ? "" : " ") + word.substr(stage_digits);
  }
  return text;
}

TEST(Schedules, ComputeInTheOrderOfTheirPapers) {
  const PipelineShape shape{.ranks = 3, .microbatches = 5};
  EXPECT_EQ(computation(make_pipeline_plan("naive", shape), 0), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(computation(make_pipeline_plan("gpipe", shape), 1), "F0 F1 F2 F3 F4 B0 B1 B2 B3 B4");
  EXPECT_EQ(computation(make_pipeline_plan("1f1b", shape), 0), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(computation(make_pipeline_plan("1f1b", shape), 2), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(computation(make_pipeline_plan("zb-h1", shape), 1),
            "F0 F1 I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4");
  EXPECT_EQ(computation(make_pipeline_plan("zb-h2", shape), 0),
            "F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4");
  EXPECT_EQ(computation(make_pipeline_plan("interleaved", {.ranks = 2, .microbatches = 4, .chunks = 2}), 1),
            "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
}

TEST(Schedules, ClampTheWarmUpWhereMicroBatchesAreFew) {
  EXPECT_EQ(computation(make_pipeline_plan("1f1b", {.ranks = 8, .microbatches = 2}), 0), "F0 F1 B0 B1");
  EXPECT_EQ(computation(make_pipeline_plan("1f1b", {.ranks = 8, .microbatches = 1}), 3), "F0 B0");
  EXPECT_EQ(computation(make_pipeline_plan("interleaved", {.ranks = 4, .microbatches = 1, .chunks = 2}), 0),
            "0F0 4F0 4B0 0B0");
}

class EverySchedule : public testing::TestWithParam<Schedule> {};

TEST_P(EverySchedule, GoesBackInTheOrderOfTheMicroBatches) {
  for (const auto& shape : shapes_of(GetParam(), 5, 12)) {
    std::map<int, int> next;  // by stage
    for (const auto& actions : make_pipeline_plan(GetParam().name, shape).actions) {
      for (const auto& action : actions) {
        if (action.kind != kBackward && action.kind != kInputGrad) continue;
        ASSERT_EQ(action.microbatch, next[action.stage]++) << shape_text(shape);
      }
    }
  }
}

TEST_P(EverySchedule, SendsRightAfterAndReceivesRightBeforeWhatComputes) {
  for (const auto& shape : shapes_of(GetParam(), 5, 12)) {
    // Of two ranks each is both after and before the other: one channel carries outputs and gradients, and
    // uneven groups need them in another order than they are sent.
    if (shape.ranks == 2 && shape.microbatches % 2 == 1 && shape.chunks > 1) continue;
    for (const auto& actions : make_pipeline_plan(GetParam().name, shape).actions) {
      for (size_t i = 0; i < actions.size(); ++i) {
        if (actions[i].is_compute()) continue;
        const Action& neighbour = actions[actions[i].is_send() ? i - 1 : i + 1];
        ASSERT_EQ(neighbour.stage, actions[i].stage) << shape_text(shape);
        ASSERT_EQ(neighbour.microbatch, actions[i].microbatch) << shape_text(shape);
      }
    }
  }
}

TEST_P(EverySchedule, IsFoundByAnySpelling) {
  std::string shouted;
  for (const char letter : GetParam().name) {
    shouted += letter == '-' ? '_' : static_cast<char>(std::toupper(letter));
  }
  EXPECT_EQ(find_schedule(shouted).name, GetParam().name);
  EXPECT_FALSE(GetParam().summary.empty());
}

INSTANTIATE_TEST_SUITE_P(Pipelines, EverySchedule, testing::ValuesIn(schedules()),
                         [](const auto& test) { return test_name(test.param); });

std::string refusal(std::string_view schedule, const PipelineShape& shape) {
  return test::refusal_of([&] { make_pipeline_plan(schedule, shape); });
}

TEST(Schedules, RefuseWhatTheyCannotDoByNameValueAndHint) {
  EXPECT_EQ(refusal("2f2b", {}),
            "schedule '2f2b': unknown; hint: one of naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2");
  EXPECT_EQ(refusal("1f1b", {.ranks = 0}), "1f1b: 0 ranks is not between 1 and 32768");
  EXPECT_EQ(refusal("gpipe", {.ranks = 2, .microbatches = 0}),
            "gpipe: 0 micro-batches; hint: give at least 1");
  EXPECT_EQ(refusal("interleaved", {.ranks = 2, .microbatches = 2, .chunks = -1}),
            "interleaved: -1 chunks; hint: give at least 1");
  EXPECT_EQ(refusal("interleaved", {.ranks = 2, .microbatches = 2}),
            "interleaved: 1 chunk; hint: 2 or more, or 1f1b");
  EXPECT_EQ(refusal("naive", {.ranks = 2, .microbatches = 2, .chunks = 2}),
            "naive: 2 chunks; hint: only interleaved has more than 1");
  EXPECT_EQ(refusal("zb-h1", {.ranks = 4, .microbatches = 3}),
            "zb-h1: 3 micro-batches on 4 ranks, fewer than 4; hint: 4 or more, or 1f1b");
  EXPECT_EQ(refusal("zb-h2", {.ranks = 4, .microbatches = 6}),
            "zb-h2: 6 micro-batches on 4 ranks, fewer than 7; hint: 7 or more, or 1f1b");
  for (const PipelineShape huge :
       {PipelineShape{.ranks = 32768, .microbatches = 1'000'000'000},
        PipelineShape{.ranks = 1, .microbatches = 2'000'000'000},
        PipelineShape{.ranks = 30000, .microbatches = 1, .chunks = 2'000'000'000}}) {
    EXPECT_THAT(refusal("interleaved", huge), HasSubstr("may have more than 4000000 actions; hint: fewer"));
  }
}

TEST(WithMessages, ReceivesInTheOrderOfTheSenderWhateverTheReceiverNeedsFirst) {
  // Rank 1 takes the micro-batches the other way round.
  PipelinePlan plan{.schedule = "mine", .shape = {.ranks = 2, .microbatches = 2}, .actions = {}};
  plan.actions = {{{kForward, 0, 0}, {kForward, 0, 1}, {kBackward, 0, 1}, {kBackward, 0, 0}},
                  {{kForward, 1, 1}, {kBackward, 1, 1}, {kForward, 1, 0}, {kBackward, 1, 0}}};
  plan = with_messages(plan);
  EXPECT_THAT(plan.actions[1],
              ElementsAre(Action{kRecvForward, 1, 0}, Action{kRecvForward, 1, 1}, Action{kForward, 1, 1},
                          Action{kBackward, 1, 1}, Action{kSendBackward, 1, 1}, Action{kForward, 1, 0},
                          Action{kBackward, 1, 0}, Action{kSendBackward, 1, 0}));
  EXPECT_EQ(verify_pipeline(plan).problem, "");
}

TEST(WithMessages, LeavesItToTheVerifierWhatNobodySends) {
  PipelinePlan plan{.schedule = "mine", .shape = {.ranks = 2, .microbatches = 1}, .actions = {}};
  plan.actions = {{{kBackward, 0, 0}}, {{kForward, 1, 0}, {kBackward, 1, 0}}};
  EXPECT_EQ(verify_pipeline(with_messages(plan)).problem, "rank 0 action 1 (0B0): its forward has not run");
}

TEST(WithMessages, RefusesActionsOfStagesThatARankHasNotGot) {
  PipelinePlan plan{.schedule = "mine", .shape = {.ranks = 2, .microbatches = 1}, .actions = {}};
  EXPECT_THROW(with_messages(plan), UsageError);
  plan.actions = {{{kForward, 1, 0}}, {}};
  try {
    with_messages(plan);
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "messages of mine: rank 0 action 0 (1F0): stage 1 is on rank 1");
  }
}

TEST(PipelineShape, HasNoMessagesWithinARankOrBeyondTheEnds) {
  const PipelineShape one{.ranks = 1, .microbatches = 1, .chunks = 3};
  const PipelineShape two{.ranks = 2, .microbatches = 1, .chunks = 2};
  EXPECT_EQ(one.peer_of({kSendForward, 0, 0}), -1);
  EXPECT_EQ(two.peer_of({kSendForward, 1, 0}), 0);
  EXPECT_EQ(two.peer_of({kRecvForward, 2, 0}), 1);
  EXPECT_EQ(two.peer_of({kSendForward, 3, 0}), -1);
  EXPECT_EQ(two.peer_of({kSendBackward, 0, 0}), -1);
  EXPECT_EQ(two.peer_of({kRecvBackward, 3, 0}), -1);
  EXPECT_EQ(two.peer_of({kForward, 1, 0}), -1);
}

}  // namespace
}  // namespace lockstep::plan
