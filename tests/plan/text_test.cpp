#include "lockstep/plan/text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/error.h"
#include "lockstep/plan/all_reduce.h"
#include "lockstep/plan/stored.h"
#include "lockstep/plan/verify.h"
#include "plan/shapes.h"

namespace lockstep::plan {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class PlanText : public testing::TestWithParam<Algorithm> {};

TEST_P(PlanText, ParsesBackToTheSameSteps) {
  for (int world = 1; world <= 16; ++world) {
    for (const Plan& plan : plans_of(GetParam(), world)) {
      const std::string text = to_string(plan);
      const Plan back = parse(text);
      ASSERT_EQ(to_string(back), text);
      ASSERT_EQ(back.ranks_per_node, plan.ranks_per_node);
      for (int rank = 0; rank < world; ++rank) {
        ASSERT_EQ(back.steps(rank), plan.steps(rank)) << text;
        for (int64_t index = 0; index < plan.size(rank); ++index) {
          ASSERT_EQ(back.step(rank, index), plan.step(rank, index)) << text;
        }
      }
    }
  }
}

TEST_P(PlanText, IsProvedAsThePlanIs) {
  for (int world = 1; world <= 9; ++world) {
    for (const Plan& plan : plans_of(GetParam(), world)) {
      const Verdict verdict = verify(parse(to_string(plan)));
      ASSERT_TRUE(verdict.ok) << verdict.problem;
      EXPECT_EQ(verdict.traffic.rounds, verify(plan).traffic.rounds);
      EXPECT_EQ(verdict.traffic.total_bytes, verify(plan).traffic.total_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanText, testing::ValuesIn(algorithms()),
                         [](const auto& test) { return test_name(test.param); });

constexpr const char* kHeader =
    "plan all_reduce mine world 2 root 0 chunks 2 slots 3 split order rank sends rendezvous\n";

TEST(PlanTextRefusal, IgnoresCommentsBlankLinesAndIndentation) {
  const Plan plan = parse(
      "# a plan\n\nplan   barrier mine world 2 root 0 chunks 1 slots 1 each order none sends buffered # "
      "two\r\n"
      "rank 0\n\t3 send 1 slot 0 chunk 0\n   # nothing\nrank 1\n0 recv 0 slots 0..0");
  EXPECT_EQ(to_string(plan),
            "plan barrier mine world 2 root 0 chunks 1 slots 1 each order none sends buffered\n"
            "rank 0\n  3 send 1 slot 0\nrank 1\n  0 recv 0 slot 0\n");
}

TEST(PlanTextRefusal, NamesLineAndReason) {
  const std::string header = kHeader;
  const std::pair<std::string, std::string> cases[] = {
      {"", "line 1: no plan"},
      {"\n# nothing\n", "line 2: no plan"},
      {"ring", "line 1: 'ring' instead of 'plan'"},
      {"plan", "line 1: ends before collective"},
      {"plan sum", "line 1: collective 'sum' is unknown; hint: one of all_reduce, broadcast"},
      {"plan reduce a/b world 1", "line 1: 'a/b' is no algorithm's name"},
      {"plan reduce mine world 0", "line 1: world 0 is not between 1 and 32768"},
      {"plan reduce mine world 32769", "line 1: world 32769 is not between"},
      {"plan reduce mine world 99999999999999999999", "line 1: world 99999999999999999999 is not between"},
      {"plan reduce mine world two", "line 1: 'two' is no world"},
      {"plan reduce mine world 2x", "line 1: 'x' after the world"},
      {"plan reduce mine world 2 root 2", "line 1: root 2 is not between 0 and 1"},
      {header + "  0 send 1 slot 0\n", "line 2: a step before 'rank 0'"},
      {header + "rank 1\n", "line 2: rank 1 instead of 0"},
      {header + "rank 0\nrank 0\n", "line 3: rank 0 instead of 1"},
      {header + "rank 0\nrank 1\nrank 2\n", "line 4: a rank after the last of 2"},
      {header + "rank 0\n", "line 2: the plan ends after 1 of 2 ranks"},
      {header + "rank 0\nsend 1 slot 0\n", "line 3: 'send' is no round"},
      {header + "rank 0\n-1 send 1 slot 0\n", "line 3: round -1 is not between 0"},
      {header + "rank 0\n0 push 1 slot 0\n", "line 3: step 'push' is unknown; hint: one of copy, combine"},
      {header + "rank 0\n0 send 1\n", "line 3: ends before 'slots'"},
      {header + "rank 0\n0 send 1 slots 3\n", "line 3: '' instead of '..' in the range of slots"},
      {header + "rank 0\n0 send 1 slots 3..1\n", "line 3: last slot 1 is not between 2"},
      {header + "rank 0\n0 send 1 slots 3..4z\n", "line 3: 'z' after the range of slots"},
      {header + "rank 0\n0 send 1 slot 0 now\n", "line 3: 'now' after the end"},
      {header + "rank 0\n0 send 1 slot 0 chunk\n", "line 3: ends before chunk"},
      {header + "rank 0\n0 copy slot 1 to 0\n", "line 3: 'to' instead of 'from'"},
      {header + "rank 0\n0 wait 1\n", "line 3: ends before 'flag'"},
      {header + "rank 0\n0 combine 2 0:1+1:0\n", "line 3: '' instead of 'x' in the number of places"},
      {header + "rank 0\n0 combine 2x 0:1\n", "line 3: '' instead of '+' in the places"},
      {header + "rank 0\n0 combine 2x 0:1+1:0 except 1\n", "line 3: '' instead of '=' in the place apart"},
      {header + "rank 0\n0 post\a\n", "line 3: step 'post?' is unknown"},
      {header + std::string(1001, ' '), "line 2: more than 1000 characters"},
      {"plan reduce mine world 32768 root 0 chunks 1 slots 1000000000 split order rank sends buffered",
       "line 1: the plan ends after 0 of 32768 ranks"},
  };
  for (const auto& [text, problem] : cases) {
    try {
      parse(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), StartsWith("plan text " + problem)) << text;
    }
  }
}

TEST(PlanTextRefusal, BoundsWhatAProofWouldTake) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      parse(text);
      return "accepted";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal("plan reduce mine world 1 root 0 chunks 1 slots 1000000000 split order rank sends "
                      "buffered\nrank 0"),
              StartsWith("plan text line 2: 1 ranks with 1000000000 slots each and 0 flags are too many"));
  std::string many =
      "plan reduce mine world 1 root 0 chunks 1 slots 10000000 split order rank sends buffered\nrank 0\n";
  for (int i = 0; i < 27; ++i) many += "0 copy slots 0..9999999 from 0\n";
  EXPECT_THAT(refusal(many), HasSubstr("the steps touch more than"));
}

TEST(PlanTextRefusal, RefusesMoreStepsThanItPrints) {
  std::string text =
      "plan barrier mine world 1 root 0 chunks 1 slots 1 each order none sends buffered\nrank 0\n";
  for (int64_t i = 0; i <= kMostPrintedSteps; ++i) text += "0 post\n";
  try {
    parse(text);
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "plan text line 1000003: more than 1000000 steps");
  }
}

TEST(StoredPlan, KeepsRoundsOfLocalStepsAsGiven) {
  // Generated phases of local steps alone take no round; a stored plan has one phase, so nothing moves.
  const std::vector<std::vector<Step>> steps = {
      {{.kind = Kind::kPost, .round = 2},
       {.kind = Kind::kSend, .round = 4, .peer = 1, .slots = {0, 1}},
       {.kind = Kind::kPost, .round = 7}},
      {{.kind = Kind::kWait, .round = 0, .peer = 0, .flag = 1}}};
  const Plan plan = stored(push_all_reduce(2), steps);
  EXPECT_EQ(plan.steps(0), steps[0]);
  EXPECT_EQ(plan.steps(1), steps[1]);
  EXPECT_EQ(plan.step(0, 2), steps[0][2]);
  EXPECT_EQ(plan.size(1), 1);
  EXPECT_EQ(parse(to_string(plan)).steps(0), steps[0]);
}

}  // namespace
}  // namespace lockstep::plan
