#include "lockstep/plan/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "lockstep/error.h"
#include "lockstep/plan/all_reduce.h"
#include "lockstep/plan/stored.h"
#include "plan/shapes.h"

namespace lockstep::plan {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Grid, DrawsARing) {
  EXPECT_EQ(grid(ring_all_reduce(3)),
            "     | rank 0          | rank 1          | rank 2\n"
            "   0 | ->1 c2 <-2 c1 + | ->2 c0 <-0 c2 + | ->0 c1 <-1 c0 +\n"
            "   1 | ->1 c1 <-2 c0 + | ->2 c2 <-0 c1 + | ->0 c0 <-1 c2 +\n"
            "   2 | ->1 c0 <-2 c2   | ->2 c1 <-0 c0   | ->0 c2 <-1 c1\n"
            "   3 | ->1 c2 <-2 c1   | ->2 c0 <-0 c2   | ->0 c1 <-1 c0\n"
            "(->N send to rank N; <-N receive from rank N; + add to one's own; cK chunk K)\n");
}

TEST(Grid, DrawsFlagsAndSums) {
  EXPECT_THAT(grid(push_all_reduce(2)), HasSubstr("   0 | flag up               | flag up\n"
                                                  "     | wait flag 1: 1        | wait flag 1: 0\n"
                                                  "     | c0 = sum 0..1 to 0..1 | c1 = sum 0..1 to 0..1\n"));
}

TEST(Grid, LeavesOutMessagesOfNoSlots) {
  const std::string text = grid(hierarchical_all_reduce(3, 2));
  EXPECT_THAT(text, Not(HasSubstr("c0--1")));
}

class EveryGrid : public testing::TestWithParam<Algorithm> {};

TEST_P(EveryGrid, FitsInto110ColumnsAtWorld4) {
  for (const Plan& plan : plans_of(GetParam(), 4)) {
    std::istringstream lines(grid(plan));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110U) << line;
  }
}

TEST_P(EveryGrid, PutsBothEndsOfAMessageInOneRow) {
  for (int world = 1; world <= kMostGridRanks; ++world) {
    for (const Plan& plan : plans_of(GetParam(), world)) {
      const auto rows = grid_rows(plan);
      std::map<std::pair<int, int>, std::vector<int>> sent, received;
      for (int rank = 0; rank < world; ++rank) {
        const auto steps = plan.steps(rank);
        for (size_t i = 0; i < steps.size(); ++i) {
          const int row = rows[static_cast<size_t>(rank)][i];
          if (i > 0 && steps[i].round > steps[i - 1].round) {
            ASSERT_GT(row, rows[static_cast<size_t>(rank)][i - 1]);
          }
          if (steps[i].is_send()) sent[{rank, steps[i].peer}].push_back(row);
          if (steps[i].is_receive()) received[{steps[i].peer, rank}].push_back(row);
        }
      }
      ASSERT_EQ(sent, received) << plan.algorithm << " world " << world;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, EveryGrid, testing::ValuesIn(algorithms()),
                         [](const auto& test) { return test_name(test.param); });

TEST(Grid, DrawsAPlanThatDeadlocks) {
  const Step send = {.kind = Kind::kSend, .peer = 1, .slots = {0, 1}};
  Step recv = {.kind = Kind::kRecv, .round = 1, .peer = 1, .slots = {0, 1}};
  Step other_recv = {.kind = Kind::kRecv, .round = 0, .peer = 0, .slots = {0, 1}};
  Step late_send = {.kind = Kind::kSend, .round = 0, .peer = 0, .slots = {0, 1}};
  other_recv.round = 1;
  const Plan plan = stored(naive_all_reduce(2), {{recv, send}, {late_send, other_recv}});
  EXPECT_THAT(grid(plan), HasSubstr("<-1 c0"));
}

TEST(Grid, RefusesWhatNobodyCanRead) {
  EXPECT_THROW(grid(ring_all_reduce(kMostGridRanks + 1)), UsageError);
  try {
    grid(naive_all_reduce(100));
    ADD_FAILURE() << "drawn";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("hint: draw a smaller world, or print the text form"));
  }
}

}  // namespace
}  // namespace lockstep::plan
