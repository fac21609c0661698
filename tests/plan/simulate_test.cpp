#include "lockstep/plan/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/error.h"
#include "lockstep/plan/all_reduce.h"
#include "lockstep/plan/collectives.h"
#include "lockstep/plan/cost.h"
#include "lockstep/plan/text.h"
#include "plan/links.h"

namespace lockstep::plan {
namespace {

constexpr Link kSlow = {.latency_s = 5e-6, .s_per_byte = 8e-11};
constexpr Link kFast = {.latency_s = 1e-6, .s_per_byte = 1e-11};

// 720720 * 64 divides by every number to 16, and by every power of two below 2048.
constexpr int64_t kDivisible = 720720 * 64;

TEST(Simulate, EqualsTheFormulaInEveryCellWhereOneHolds) {
  int cells = 0;
  for (const auto& algorithm : algorithms()) {
    for (const int world : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}) {
      for (const double gamma : {0.0, 3e-11}) {
        for (const int64_t bytes : {kDivisible, kDivisible * 3}) {
          const Shape shape{.world = world, .root = 0, .ranks_per_node = 2};
          Network network{.between = kSlow, .inside = kFast, .reduce_s_per_byte = gamma};
          if (algorithm.name == "hierarchical") network.ranks_per_node = 2;
          const auto formula = formula_time(algorithm.collective, algorithm.name, shape, bytes, network);
          if (!formula) continue;
          const double time = simulate(algorithm.make(shape), network, bytes / 4).time_s;
          EXPECT_NEAR(time, *formula, 1e-9 * *formula + 1e-15)
              << name(algorithm.collective) << " " << algorithm.name << " world " << world;
          ++cells;
        }
      }
    }
  }
  EXPECT_GE(cells, 200);
  RecordProperty("cells", cells);
}

TEST(Simulate, IsTheSameEveryTime) {
  const Network network{.between = kSlow, .slow = {{3, 2.5}}, .slow_links = {{{1, 2}, 4.0}}};
  const Plan plan = halving_doubling_all_reduce(13);
  EXPECT_EQ(simulate(plan, network, 100'001).time_s, simulate(plan, network, 100'001).time_s);
}

TEST(Simulate, ASlowRankHoldsUpARingInEveryRound) {
  const Network even{.between = kSlow};
  const Network uneven{.between = kSlow, .slow = {{2, 3.0}}};
  const double fast = simulate(ring_all_reduce(8), even, kDivisible).time_s;
  const double slow = simulate(ring_all_reduce(8), uneven, kDivisible).time_s;
  EXPECT_NEAR(slow / fast, 3.0, 1e-9) << "every chunk passes the slow rank in every turn";
}

TEST(Simulate, ASlowLinkCountsInItsOwnDirection) {
  const Plan plan = ring_all_reduce(4);
  const double plain = simulate(plan, {.between = kSlow}, kDivisible).time_s;
  EXPECT_GT(simulate(plan, {.between = kSlow, .slow_links = {{{0, 1}, 5.0}}}, kDivisible).time_s, 2 * plain);
  EXPECT_EQ(simulate(plan, {.between = kSlow, .slow_links = {{{1, 0}, 5.0}}}, kDivisible).time_s, plain);
}

TEST(Simulate, ASlowReceiverHoldsUpWhatIsSentToIt) {
  // Data goes one way only: the slow rank is never a sender.
  const double even = simulate(linear_broadcast(4, 0), {.between = kSlow}, 1000).time_s;
  const double uneven = simulate(linear_broadcast(4, 0), {.between = kSlow, .slow = {{3, 4.0}}}, 1000).time_s;
  EXPECT_NEAR(uneven, even / 3 * (1 + 1 + 4), 1e-12);
  const Network one_node{.inside = kFast, .ranks_per_node = 4, .slow = {{3, 4.0}}};
  EXPECT_NEAR(simulate(pull_broadcast(4, 0), one_node, 1000).time_s, 4 * (2 * 1e-6 + 4000 * 1e-11), 1e-12);
}

TEST(Simulate, ABufferedSendTakesTheWayOutAndDoesNotWaitForItsReceive) {
  Plan broadcast = linear_broadcast(5, 0);
  const double in_turn = simulate(broadcast, {.between = kSlow}, 1000).time_s;
  broadcast.sends = Sends::kBuffered;
  EXPECT_DOUBLE_EQ(simulate(broadcast, {.between = kSlow}, 1000).time_s, in_turn);

  // Rank 0 is busy until 3 with what rank 1 and then rank 3 sent; rank 3 goes on at 2, with what rank 2 sent.
  Plan busy = parse(
      "plan broadcast mine world 5 root 0 chunks 1 slots 1 split order none sends buffered\n"
      "rank 0\n  0 recv 1 slot 0\n  1 recv 1 slot 0\n  2 recv 3 slot 0\n"
      "rank 1\n  0 send 0 slot 0\n  1 send 0 slot 0\n"
      "rank 2\n  0 recv 4 slot 0\n  1 send 3 slot 0\n"
      "rank 3\n  0 send 0 slot 0\n  1 recv 2 slot 0\n  2 send 4 slot 0\n"
      "rank 4\n  0 send 2 slot 0\n  1 recv 3 slot 0\n");
  EXPECT_DOUBLE_EQ(simulate(busy, {.between = {.latency_s = 1}}, 1).time_s, 3);
  busy.sends = Sends::kRendezvous;
  EXPECT_DOUBLE_EQ(simulate(busy, {.between = {.latency_s = 1}}, 1).time_s,
                   5);  // nobody sends to rank 3 before 3
}

TEST(Simulate, TwoLevelsMakeHierarchicalWin) {
  const Network network{
      .between = {.latency_s = 5e-6, .s_per_byte = 8e-10}, .inside = kFast, .ranks_per_node = 8};
  const Count count = 1 << 22;
  const double flat = simulate(ring_all_reduce(64), network, count).time_s;
  const double two_level = simulate(hierarchical_all_reduce(64, 8), network, count).time_s;
  EXPECT_LT(two_level, flat / 2);
}

TEST(Simulate, EmptyMessagesCostNothing) {
  const Network network{.between = kSlow};
  EXPECT_EQ(simulate(ring_all_reduce(8), network, 0).time_s, 0);
  const Simulation few = simulate(ring_all_reduce(8), network, 3);
  EXPECT_EQ(few.traffic.total_messages, 3 * 14)
      << "three chunks of one element go round twice; five are empty";
}

TEST(Traffic, OfARingIsTheLeastPossible) {
  const Traffic traffic = verify(ring_all_reduce(8), {.count = 800, .element_bytes = 4}).traffic;
  EXPECT_EQ(traffic.bytes_per_rank, 2 * 7 * 100 * 4);
  EXPECT_EQ(traffic.bytes_per_link, traffic.bytes_per_rank);
  EXPECT_EQ(traffic.messages_per_rank, 14);
  EXPECT_EQ(traffic.rounds, 14);
}

TEST(Traffic, OfNaiveAllPassesTheRootsLink) {
  const Traffic traffic = verify(naive_all_reduce(8), {.count = 100, .element_bytes = 4}).traffic;
  EXPECT_EQ(traffic.total_bytes, 2 * 7 * 400);
  EXPECT_EQ(traffic.bytes_at_rank, 2 * 7 * 400);
  EXPECT_EQ(traffic.bytes_per_link, 400);
  EXPECT_EQ(traffic.rounds, 2);
}

TEST(Traffic, OfALinkIsKeptWhenItsSenderGetsManyPartners) {
  Links links(100);
  links.add(0, 1, 70);
  for (int partner = 2; partner < 100; ++partner) links.add(0, partner, 10);
  EXPECT_EQ(links.most(), 70);
  links.add(0, 1, 5);
  EXPECT_EQ(links.most(), 75);
}

TEST(Traffic, IsTheSameForVerifierAndSimulator) {
  for (const auto& algorithm : algorithms()) {
    const Plan plan = algorithm.make({.world = 11, .root = 4, .ranks_per_node = 4});
    const Traffic proved = verify(plan, {.count = 1000, .element_bytes = 4}).traffic;
    const Traffic run = simulate(plan, {.between = kSlow}, 1000).traffic;
    EXPECT_EQ(proved.bytes_per_rank, run.bytes_per_rank) << algorithm.name;
    EXPECT_EQ(proved.bytes_per_link, run.bytes_per_link) << algorithm.name;
    EXPECT_EQ(proved.total_messages, run.total_messages) << algorithm.name;
    EXPECT_EQ(proved.rounds, run.rounds) << algorithm.name;
  }
}

TEST(ChooseAlgorithm, TakesTheLeastOfTheModel) {
  for (const int world : {2, 3, 8, 13, 64}) {
    for (const int64_t bytes : {int64_t{64}, int64_t{1} << 14, int64_t{1} << 28}) {
      const Shape shape{.world = world};
      const Network network{.between = kSlow};
      const Estimate chosen = choose_algorithm(Collective::kAllReduce, shape, bytes, network);
      for (const auto& algorithm : algorithms_of(Collective::kAllReduce)) {
        if (!applies(algorithm, shape, network)) continue;
        EXPECT_LE(chosen.time_s, model_time(Collective::kAllReduce, algorithm.name, shape, bytes, network));
      }
    }
  }
  const Network one_node{.inside = kFast, .ranks_per_node = 4};
  EXPECT_EQ(choose_algorithm(Collective::kAllReduce, {.world = 4}, 1 << 20, one_node).algorithm, "push");
}

TEST(EstimateCommunicationTime, IsTheModelsAnswer) {
  EXPECT_DOUBLE_EQ(estimate_communication_time(1000, 4, 1e6, 1e-3, "ring"), 6 * (1e-3 + 250 / 1e6));
  EXPECT_LE(estimate_communication_time(1000, 4, 1e6, 1e-3, "auto"),
            estimate_communication_time(1000, 4, 1e6, 1e-3, "ring"));
  EXPECT_EQ(estimate_communication_time(1000, 1, 1e6, 1e-3, "ring"), 0);
  EXPECT_THROW(estimate_communication_time(1000, 0, 1e6, 1e-3, "ring"), UsageError);
  EXPECT_THROW(estimate_communication_time(1000, 4, 0, 1e-3, "ring"), UsageError);
  EXPECT_THROW(estimate_communication_time(1000, 4, 1e6, -1, "ring"), UsageError);
  EXPECT_THROW(estimate_communication_time(1000, 4, 1e6, 1e-3, "zigzag"), UsageError);
}

}  // namespace
}  // namespace lockstep::plan
