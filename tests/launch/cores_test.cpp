#include "launch/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <thread>

#include "launch/cgroup.h"

namespace lockstep::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// `count` cores of `threads` hardware threads, numbered as Linux does: second threads after all first ones.
std::vector<Core> made_up_cores(int count, int threads) {
  std::vector<Core> cores;
  for (int core = 0; core < count; ++core) {
    auto& cpus = cores.emplace_back().cpus;
    for (int thread = 0; thread < threads; ++thread) cpus.push_back(core + thread * count);
  }
  return cores;
}

TEST(ShareCores, KeepsTheHardwareThreadsOfACoreTogether) {
  EXPECT_THAT(share_cores(made_up_cores(4, 2), 2),
              ElementsAre(ElementsAre(0, 4, 1, 5), ElementsAre(2, 6, 3, 7)));
}

TEST(ShareCores, GivesTheFirstRanksWhatDoesNotDivide) {
  EXPECT_THAT(share_cores(made_up_cores(5, 1), 3),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

TEST(ShareCores, IsEmptyForMoreRanksThanCores) {
  EXPECT_THAT(share_cores(made_up_cores(2, 2), 3), IsEmpty());
  EXPECT_THAT(share_cores(made_up_cores(2, 2), 0), IsEmpty());
  EXPECT_THAT(share_cores({}, 1), IsEmpty());
}

TEST(ShareCores, PutsEveryCoreInExactlyOneEvenNeighbouringShare) {
  for (int count = 1; count <= 33; ++count) {
    for (int threads = 1; threads <= 4; ++threads) {
      const auto cores = made_up_cores(count, threads);
      std::vector<int> in_order;
      for (const auto& core : cores) in_order.insert(in_order.end(), core.cpus.begin(), core.cpus.end());
      for (int ranks = 1; ranks <= count; ++ranks) {
        const auto shares = share_cores(cores, ranks);
        ASSERT_EQ(shares.size(), static_cast<size_t>(ranks));
        std::vector<int> joined;
        size_t least = in_order.size();
        size_t most = 0;
        for (const auto& share : shares) {
          ASSERT_EQ(share.size() % static_cast<size_t>(threads), 0U) << "a core was split";
          least = std::min(least, share.size());
          most = std::max(most, share.size());
          joined.insert(joined.end(), share.begin(), share.end());
        }
        ASSERT_EQ(joined, in_order) << count << " cores, " << ranks << " ranks";
        ASSERT_LE(most - least, static_cast<size_t>(threads));
        ASSERT_GE(least / static_cast<size_t>(threads), static_cast<size_t>(threads_per_rank(count, ranks)));
      }
    }
  }
}

TEST(ThreadsPerRank, IsTheShareAndAtLeastOne) {
  EXPECT_EQ(threads_per_rank(8, 2), 4);
  EXPECT_EQ(threads_per_rank(7, 2), 3);
  EXPECT_EQ(threads_per_rank(2, 5), 1);
}

TEST(UsableCores, AreLimitedByTheQuota) {
  const auto cores = made_up_cores(8, 2);
  EXPECT_EQ(usable_cores(cores, std::nullopt), 8);
  EXPECT_EQ(usable_cores(cores, 100.0), 8);
  EXPECT_EQ(usable_cores(cores, 3.9), 3);
  EXPECT_EQ(usable_cores(cores, 0.5), 1);
  EXPECT_EQ(usable_cores({}, std::nullopt), 1);
}

TEST(AllowedCores, AreExactlyThisThreadsAffinity) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<int> expected;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) expected.push_back(cpu);
  }
  std::vector<int> found;
  for (const auto& core : allowed_cores()) found.insert(found.end(), core.cpus.begin(), core.cpus.end());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, expected);
}

TEST(AllowedCores, FollowANarrowerAffinity) {
  std::thread([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    int last = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) last = CPU_ISSET(cpu, &all) ? cpu : last;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    const auto cores = allowed_cores();
    ASSERT_EQ(cores.size(), 1U);
    EXPECT_THAT(cores[0].cpus, ElementsAre(last));
    EXPECT_EQ(usable_cores(), 1);
  }).join();
}

}  // namespace
}  // namespace lockstep::launch
