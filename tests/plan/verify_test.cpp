#include "lockstep/plan/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/plan/all_reduce.h"
#include "lockstep/plan/collectives.h"
#include "support/sanitizers.h"

namespace lockstep::plan {
namespace {

bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kScatter || collective == Collective::kGather;
}

std::vector<int> roots(Collective collective, int world) {
  if (!has_root(collective)) return {0};
  std::vector<int> all;
  for (int root = 0; root < world; ++root) all.push_back(root);
  return all;
}

class EveryAlgorithm : public testing::TestWithParam<Algorithm> {};

TEST_P(EveryAlgorithm, IsProvedForSmallWorldsAndEveryRoot) {
  const Algorithm& algorithm = GetParam();
  for (int world = 1; world <= (test::kSanitizer ? 16 : 64); ++world) {
    for (const int root : roots(algorithm.collective, world)) {
      for (const int per_node :
           algorithm.name == "hierarchical" ? std::vector{1, 2, 3, 4, 8, 64} : std::vector{1}) {
        const Plan plan = algorithm.make({.world = world, .root = root, .ranks_per_node = per_node});
        const Verdict verdict = verify(plan);
        ASSERT_TRUE(verdict.ok) << "world " << world << " root " << root << " per node " << per_node << ": "
                                << verdict.problem;
        EXPECT_TRUE(verdict.exact);
        EXPECT_TRUE(verdict.rendezvous);
      }
    }
  }
}

TEST_P(EveryAlgorithm, IsProvedForSelectedLargeWorlds) {
  const Algorithm& algorithm = GetParam();
  for (const int world :
       test::kSanitizer ? std::vector{65, 128} : std::vector{65, 100, 127, 128, 129, 255, 256}) {
    const Plan plan = algorithm.make({.world = world, .root = world / 3, .ranks_per_node = 8});
    const Verdict verdict = verify(plan);
    ASSERT_TRUE(verdict.ok) << "world " << world << ": " << verdict.problem;
    EXPECT_FALSE(verdict.exact);
  }
}

/// A tree of 256 ranks, checked by two threads, in which these ranks send to one that does not exist.
std::string problem_of_large_tree(const std::vector<int>& wrong) {
  Plan plan = make_plan(Collective::kAllReduce, "tree", {.world = 256});
  for (auto& phase : plan.phases) {
    phase.step = [right = phase.step, wrong](int rank, int64_t index) {
      Step step = right(rank, index);
      const bool is_wrong = std::find(wrong.begin(), wrong.end(), rank) != wrong.end();
      if (is_wrong && step.kind == Kind::kSend) step.peer = 999;
      return step;
    };
  }
  return verify(plan).problem;
}

TEST(LargeWorlds, AreCheckedInHalvesAndTheLowerOnesProblemIsTold) {
  EXPECT_EQ(problem_of_large_tree({}), "");
  EXPECT_THAT(problem_of_large_tree({200}), testing::StartsWith("rank 200 step"));
  EXPECT_THAT(problem_of_large_tree({200, 100}), testing::StartsWith("rank 100 step"));
}

INSTANTIATE_TEST_SUITE_P(Plans, EveryAlgorithm, testing::ValuesIn(algorithms()), [](const auto& test) {
  std::string name = std::string(plan::name(test.param.collective)) + "_" + std::string(test.param.name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace lockstep::plan
