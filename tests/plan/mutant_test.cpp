// Plans spoilt in one place: the verifier refuses whatever gives wrong data or hangs on real buffers.
#include "plan/mutants.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "lockstep/plan/all_reduce.h"
#include "lockstep/plan/stored.h"
#include "lockstep/plan/text.h"
#include "lockstep/plan/verify.h"
#include "plan/reference.h"
#include "plan/shapes.h"

namespace lockstep::plan {
namespace {

constexpr int kWorlds[] = {2, 3, 4, 5, 7, 8};
constexpr int kMutantsOfEachClass = 20;

struct Tally {
  int mutants = 0;
  int refused = 0;
  int faulty = 0;  ///< Of the refused, those that the oracle caught, too.
};

/// A refusal tells which rank, and which step or which end it comes to.
bool is_precise(const std::string& problem) {
  static const std::regex pattern(
      "(rank \\d+ step \\d+ \\(.*|deadlock with .* rank \\d+ waits in step \\d+ .*|rank \\d+ "
      "(ends|leaves|has "
      "added) .*)");
  return std::regex_match(problem, pattern);
}

/// One mutant against the oracle.
void check(const Plan& mutant, uint64_t seed, Tally& tally) {
  ++tally.mutants;
  const Verdict verdict = verify(mutant);
  if (!verdict.ok) {
    ++tally.refused;
    EXPECT_TRUE(is_precise(verdict.problem)) << verdict.problem << "\n" << to_string(mutant);
    if (!reference::any_fault_of(mutant, 2, seed).empty()) ++tally.faulty;
    return;
  }
  EXPECT_EQ(reference::any_fault_of(mutant, 24, seed), "") << "accepted, but wrong:\n" << to_string(mutant);
  EXPECT_EQ(reference::order_fault_of(mutant, 3 * mutant.chunks, seed), "")
      << "accepted, but adds in another order:\n"
      << to_string(mutant);
}

/// The verifier refuses what can never be right, and the oracle is not blind: it finds most of it, too.
void expect_power(const std::map<Mutation, Tally>& tallies, bool another_peer_may_do = false) {
  Tally all;
  for (const auto& [mutation, tally] : tallies) {
    all.mutants += tally.mutants;
    all.refused += tally.refused;
    all.faulty += tally.faulty;
    // The others may hit a step that has no effect: a sum of one, a second wait for the same flag.
    if ((mutation == Mutation::kWrongPeer && !another_peer_may_do) || mutation == Mutation::kWrongChunk ||
        mutation == Mutation::kMissingWait || mutation == Mutation::kMissingPost) {
      EXPECT_EQ(tally.refused, tally.mutants) << name(mutation);
    }
    testing::Test::RecordProperty(std::string(name(mutation)),
                                  fmt::format("{} mutants, {} refused, {} of them wrong on buffers",
                                              tally.mutants, tally.refused, tally.faulty));
  }
  EXPECT_GT(all.mutants, 500);
  EXPECT_GE(all.refused, all.mutants * 4 / 5);
  EXPECT_GT(all.faulty, all.refused / 2);
}

void check_mutants(const std::vector<Plan>& plans, std::map<Mutation, Tally>& tallies,
                   std::mt19937_64& random) {
  for (const Mutation mutation : kMutations) {
    for (int i = 0; i < kMutantsOfEachClass; ++i) {
      const Plan& plan = plans[random() % plans.size()];
      const auto mutant = mutant_of(plan, mutation, random);
      if (mutant) check(*mutant, random() % 1000, tallies[mutation]);
      if (testing::Test::HasFailure()) return;
    }
  }
}

class Mutants : public testing::TestWithParam<Algorithm> {};

TEST_P(Mutants, ThatGiveWrongDataOrHangAreRefusedByRankAndStep) {
  std::mt19937_64 random(4711);
  std::map<Mutation, Tally> tallies;
  for (const int world : kWorlds) check_mutants(plans_of(GetParam(), world), tallies, random);
  // Who waits for another that has loaded from the root knows that the root was ready.
  const bool another_peer_may_do = GetParam().collective == Collective::kBroadcast && GetParam().one_sided;
  expect_power(tallies, another_peer_may_do);
}

INSTANTIATE_TEST_SUITE_P(Plans, Mutants, testing::ValuesIn(algorithms()),
                         [](const auto& test) { return test_name(test.param); });

/// Flags inside nodes of two ranks, messages between the two nodes: each slice is added inside a node, then
/// between nodes, then stored into the neighbour's memory.
Plan mixed_plan() {
  std::string text =
      "plan all_reduce mixed world 4 root 0 chunks 2 slots 2 split order node sends rendezvous "
      "ranks_per_node 2\n";
  for (int rank = 0; rank < 4; ++rank) {
    text += fmt::format(
        "rank {rank}\n  0 post\n  0 wait {next} flag 1\n"
        "  0 combine 2x {first}:{slice}+1:0 to 1x {rank}:{slice}+0:0 width 1 chunk {slice}\n"
        "  0 send {across} slot {slice}\n  0 recv_reduce {across} slot {slice}\n"
        "  1 combine 1x {rank}:{slice}+0:0 to 1x {next}:{slice}+0:0 width 1 chunk {slice}\n"
        "  1 post\n  1 wait {next} flag 2\n",
        fmt::arg("rank", rank), fmt::arg("next", rank ^ 1), fmt::arg("first", rank & 2),
        fmt::arg("slice", rank & 1), fmt::arg("across", rank ^ 2));
  }
  return parse(text);
}

TEST(MixedPlan, IsProvedAndRight) {
  const Verdict verdict = verify(mixed_plan());
  EXPECT_TRUE(verdict.ok) << verdict.problem;
  EXPECT_EQ(reference::any_fault_of(mixed_plan(), 100, 0), "");
  EXPECT_EQ(reference::order_fault_of(mixed_plan(), 100, 0), "");
}

TEST(MixedPlan, HasMutantsThatAreRefused) {
  std::mt19937_64 random(42);
  std::map<Mutation, Tally> tallies;
  for (int i = 0; i < 6; ++i) check_mutants({mixed_plan()}, tallies, random);
  expect_power(tallies);
}

TEST(Push, NeedsEveryWaitAndEveryPost) {
  for (const int world : kWorlds) {
    const Plan push = push_all_reduce(world);
    for (int rank = 0; rank < world; ++rank) {
      for (int64_t index = 0; index < push.size(rank); ++index) {
        std::vector<std::vector<Step>> steps;
        for (int other = 0; other < world; ++other) steps.push_back(push.steps(other));
        auto& of_rank = steps[static_cast<size_t>(rank)];
        of_rank.erase(of_rank.begin() + index);
        const Verdict verdict = verify(stored(push, steps));
        ASSERT_FALSE(verdict.ok) << "rank " << rank << " without step " << index;
        ASSERT_TRUE(is_precise(verdict.problem)) << verdict.problem;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::plan
