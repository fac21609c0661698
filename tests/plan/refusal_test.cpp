// Bad plans, made by hand: what only a careful verifier sees.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/plan/all_reduce.h"
#include "lockstep/plan/stored.h"
#include "lockstep/plan/text.h"
#include "lockstep/plan/verify.h"
#include "plan/reference.h"

namespace lockstep::plan {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string problem_of(std::string_view text) {
  const Verdict verdict = verify(parse(text));
  return verdict.ok ? "accepted" : verdict.problem;
}

TEST(Refusal, OrderByNodesNeedsNodes) {
  EXPECT_THAT(
      problem_of("plan all_reduce mine world 1 root 0 chunks 1 slots 1 split order node sends rendezvous\n"
                 "rank 0\n"),
      HasSubstr("order node"));
}

TEST(Refusal, AReductionDeclaresItsOrder) {
  EXPECT_THAT(
      problem_of("plan all_reduce mine world 1 root 0 chunks 1 slots 1 split order none sends rendezvous\n"
                 "rank 0\n"),
      HasSubstr("order none"));
}

TEST(Refusal, ABufferedMessageMustBeReceived) {
  EXPECT_EQ(problem_of("plan broadcast mine world 2 root 0 chunks 1 slots 1 split order none sends buffered\n"
                       "rank 0\n  0 send 1 slot 0\n  1 send 1 slot 0\n"
                       "rank 1\n  0 recv 0 slot 0\n"),
            "rank 0 step 1 (send 1 slot 0): is never received");
}

TEST(Refusal, AMessageOfNoSlotsTellsNothing) {
  EXPECT_EQ(problem_of("plan barrier mine world 2 root 0 chunks 1 slots 1 each order none sends buffered\n"
                       "rank 0\n  0 send 1 slots 0..-1\n  0 recv 1 slots 0..-1\n"
                       "rank 1\n  0 send 0 slots 0..-1\n  0 recv 0 slots 0..-1\n"),
            "rank 0 leaves the barrier without having heard of rank 1");
}

TEST(Refusal, ARankMayNotLeaveWhileOthersLoadItsMemory) {
  const std::string leaves =
      "plan reduce mine world 2 root 0 chunks 1 slots 1 split order rank sends rendezvous\n"
      "rank 0\n  0 wait 1 flag 1\n  0 combine 2x 0:0+1:0 to 1x 0:0+0:0 width 1 chunk 0\n  0 post\n"
      "rank 1\n  0 post\n";
  EXPECT_EQ(problem_of(leaves),
            "rank 1 ends while rank 0 may still be loading its slot 0: no flag orders them");
  EXPECT_EQ(problem_of(leaves + "  0 wait 0 flag 1\n"), "accepted");
}

TEST(Refusal, AnEmptyMessageOrdersNothing) {
  // With one element only chunk 0 has any; the message of chunk 1 is not sent, so rank 0 loads too early.
  const auto plan = [](const char* chunk) {
    return std::string(
               "plan reduce mine world 2 root 0 chunks 2 slots 3 split order rank sends rendezvous\n"
               "rank 0\n  0 recv 1 slot 2 chunk ") +
           chunk +
           "\n  1 combine 2x 0:0+1:0 to 1x 0:0+0:0 width 2 chunk 0\n  1 post\nrank 1\n  0 send 0 slot " +
           chunk + "\n  1 wait 0 flag 1\n";
  };
  EXPECT_THAT(problem_of(plan("1")),
              HasSubstr("loads slot 0 of rank 1 while rank 1 may still be storing it"));
  EXPECT_EQ(problem_of(plan("0")), "accepted");
}

TEST(Refusal, AReceiveIsNotOrderedByALaterOneOfItsRound) {
  // Rank 1 loads slot 0 of rank 0, which rank 2's message may overwrite before rank 1 has told that it is
  // done.
  EXPECT_THAT(
      problem_of("plan broadcast mine world 3 root 0 chunks 1 slots 2 split order none sends rendezvous\n"
                 "rank 0\n  0 post\n  0 send 2 slot 0\n  1 recv 2 slot 0\n  1 recv 1 slot 1 chunk 0\n"
                 "rank 1\n  0 wait 0 flag 1\n  0 combine 1x 0:0+0:0 to 1x 1:0+0:0 width 1 chunk 0\n"
                 "  0 send 0 slot 0\n"
                 "rank 2\n  0 recv 0 slot 0\n  1 send 0 slot 0\n"),
      HasSubstr("while rank"));
}

TEST(Refusal, AllRanksKeepEachOperandOnTheSameSide) {
  // Both ranks add both contributions. If each put its own on the left, max(0, -0) would differ.
  const auto plan = [](const char* order, const char* second) {
    return fmt::format(
        "plan all_reduce mine world 2 root 0 chunks 1 slots 2 split order {} sends rendezvous\n"
        "rank 0\n  0 send 1 slot 0\n  0 recv 1 slot 1 chunk 0\n"
        "  1 combine 2x 0:0+0:1 to 1x 0:0+0:0 width 1 chunk 0\n"
        "rank 1\n  0 send 0 slot 0\n  0 recv 0 slot 1 chunk 0\n"
        "  1 combine 2x 1:{} to 1x 1:0+0:0 width 1 chunk 0\n",
        order, second);
  };
  const char* const own_first = "0+0:1";
  const char* const own_last = "1+0:-1";
  EXPECT_EQ(problem_of(plan("tree", own_first)),
            "rank 1 has added chunk 0 in another order than the ranks before it");
  EXPECT_EQ(problem_of(plan("rank", own_first)),
            "rank 1 has added chunk 0 in another order than the declared one (rank)");
  for (const char* order : {"tree", "rank"}) {
    EXPECT_EQ(problem_of(plan(order, own_last)), "accepted");
    EXPECT_NE(reference::order_fault_of(parse(plan(order, own_first)), 3, 1), "");
    EXPECT_EQ(reference::order_fault_of(parse(plan(order, own_last)), 3, 1), "");
  }
}

TEST(Refusal, ThePlaceApartIsOneOfTheRanksOwnSlots) {
  const Plan direct = direct_all_reduce(2);  // 2 chunks, 4 slots
  const auto problem = [&](int width, int except_slot) {
    const Places apart = {.rank = 0, .slot = 0, .count = 1, .except = 0, .except_slot = except_slot};
    const Places own = {.rank = 0, .slot = 0, .count = 1};
    const Step loads = {.kind = Kind::kCombine, .width = width, .sources = apart, .destinations = own};
    const Step stores = {.kind = Kind::kCombine, .width = width, .sources = own, .destinations = apart};
    const auto of_loads = verify(stored(direct, {{loads}, {}})).problem;
    const auto of_stores = verify(stored(direct, {{stores}, {}})).problem;
    const auto refuses = [](const std::string& text) {
      return text.find("is not there") != std::string::npos;
    };
    EXPECT_EQ(refuses(of_loads), refuses(of_stores)) << of_stores;
    return of_loads;
  };
  for (const auto& [width, last] : {std::pair{1, 3}, {2, 2}}) {
    EXPECT_THAT(problem(width, -1), HasSubstr("slot -1 is not there"));
    EXPECT_THAT(problem(width, last + 1), HasSubstr(fmt::format("slot {} is not there", last + 1)));
    EXPECT_THAT(problem(width, last), testing::Not(HasSubstr("is not there")));
  }
  const Places of_another = {.rank = 0, .rank_step = 1, .slot = 0, .count = 2, .except = 1, .except_slot = 2};
  const Step step = {
      .kind = Kind::kCombine, .sources = of_another, .destinations = {.rank = 0, .slot = 0, .count = 1}};
  EXPECT_THAT(verify(stored(direct, {{step}, {}})).problem, HasSubstr("the place apart is not its own"));
}

TEST(Refusal, DoublingUntilItVanishesIsNoProof) {
  // Ranks 0 and 1 of 65 double their sums 140 times, to nothing modulo 2^128, and then get the right one.
  constexpr int kWorld = 65;
  const Plan naive = naive_all_reduce(kWorld);
  std::vector<std::vector<Step>> steps;
  for (int rank = 0; rank < kWorld; ++rank) steps.push_back(naive.steps(rank));
  for (const int rank : {1, 2}) {
    auto& of_rank = steps[static_cast<size_t>(rank)];
    const int peer = 3 - rank;
    int round = of_rank.back().round + 1;
    for (int i = 0; i < 140; ++i, ++round) {
      of_rank.push_back({.kind = Kind::kSend, .round = round, .peer = peer, .slots = {0, 1}});
      of_rank.push_back({.kind = Kind::kRecvReduce, .round = round, .peer = peer, .slots = {0, 1}});
    }
    of_rank.push_back(
        {.kind = rank == 1 ? Kind::kRecvReduce : Kind::kSend, .round = round, .peer = peer, .slots = {0, 1}});
  }
  // Rank 0 sends the sum once more to both.
  for (const int rank : {1, 2}) {
    auto& of_rank = steps[static_cast<size_t>(rank)];
    of_rank.push_back(
        {.kind = Kind::kRecvReduce, .round = of_rank.back().round + 1, .peer = 0, .slots = {0, 1}});
    steps[0].push_back(
        {.kind = Kind::kSend, .round = steps[0].back().round + 1, .peer = rank, .slots = {0, 1}});
  }
  EXPECT_THAT(verify(stored(naive, steps)).problem, HasSubstr("adds a contribution to chunk 0 twice"));
}

TEST(Refusal, NumbersBeyondTheSlotsDoNotOverflow) {
  constexpr int kMost = std::numeric_limits<int>::max();
  const Places own = {.rank = 0, .slot = 0, .count = 1};
  const Places far = {.rank = 0, .slot = 0, .count = 1, .except = 0, .except_slot = kMost};
  const Step bad[] = {{.kind = Kind::kCombine, .sources = far, .destinations = own},
                      {.kind = Kind::kCombine, .sources = own, .destinations = far},
                      {.kind = Kind::kCopy, .slots = {0, 1}, .from = kMost},
                      {.kind = Kind::kCopy, .slots = {kMost, kMost}, .from = 0},
                      {.kind = Kind::kSend, .peer = kMost, .slots = {0, 1}},
                      {.kind = Kind::kSend, .peer = 1, .slots = {0, 1}, .chunk = kMost}};
  for (const Step& step : bad) {
    const Verdict verdict = verify(stored(naive_all_reduce(2), {{step}, {}}));
    EXPECT_THAT(verdict.problem, StartsWith("rank 0 step 0 (")) << to_string(step);
  }
}

}  // namespace
}  // namespace lockstep::plan
