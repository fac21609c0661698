// What a cut between hosts does: packets are lost in silence, so TCP itself notices nothing for many minutes.
#include <signal.h>
#include <sys/wait.h>

#include <thread>

#include "comms/between_hosts.h"

namespace lockstep::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class BetweenHostsCut : public BetweenHosts {
 protected:
  /// Cuts host 1 off once all ranks are in `act`, which must not come back.
  std::vector<Ended> cut_within(milliseconds timeout, const std::function<void(Communicator&)>& act) {
    return run(
        [&](Communicator& comm) -> std::string {
          comm.barrier();
          sign(std::to_string(comm.rank())).give();
          act(comm);
          return "it went on";
        },
        {.timeout = timeout, .meanwhile = [&](const std::vector<int>&) {
           for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(sign(std::to_string(rank)).await());
           hosts().cut(1);
         }});
  }

  static bool names_other_side(const Ended& ended, size_t rank) {
    const auto has = [&](const char* text) { return ended.text.find(text) != std::string::npos; };
    return rank < 2 ? has("rank 2") || has("rank 3") : has("rank 0") || has("rank 1");
  }
  static void expect_all_failed(const std::vector<Ended>& ended) {
    for (size_t rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(WEXITSTATUS(ended[rank].status), 3) << "on rank " << rank << ": " << ended[rank].text;
  }
  static void expect_other_side_named(const std::vector<Ended>& ended) {
    expect_all_failed(ended);
    for (size_t rank = 0; rank < kRanks; ++rank)
      EXPECT_TRUE(names_other_side(ended[rank], rank)) << ended[rank].text;
  }
};

void all_reduce_forever(Communicator& comm) {
  std::vector<float> data(1 << 18);
  for (;;) comm.all_reduce(data);
}

TEST_F(BetweenHostsCut, WithinACollectiveEndsAtTheTimeoutOnBothSides) {
  const auto ended = cut_within(milliseconds(3000), all_reduce_forever);
  // Also by a rank that waits for its neighbour, which in turn waits for the other side.
  expect_other_side_named(ended);
}

TEST_F(BetweenHostsCut, WithinACollectiveIsNoticedLongBeforeALongTimeout) {
  const auto ended = cut_within(std::chrono::minutes(10), all_reduce_forever);
  expect_other_side_named(ended);
  for (const auto& rank : ended) EXPECT_THAT(rank.text, HasSubstr("does not answer any more"));
}

TEST_F(BetweenHostsCut, WhileRanksOnlyWaitIsNoticedLongBeforeALongTimeout) {
  const auto ended = cut_within(std::chrono::minutes(10), [&](Communicator& comm) {
    // No data is on its way: rank 3 comes to the barrier only when the others have given up.
    if (comm.rank() == 3) sign("gave up").await();
    try {
      comm.barrier();
    } catch (...) {
      if (comm.rank() == 2) sign("gave up").give();
      throw;
    }
  });
  expect_other_side_named(ended);
  for (const auto& rank : ended) EXPECT_THAT(rank.text, HasSubstr("does not answer any more"));
}

// The control plane is a star: a cut that leaves rank 0 in reach is noticed by the data that does not come.
TEST_F(BetweenHostsCut, BetweenTwoHostsThatStillReachRank0EndsAtTheTimeout) {
  const Hosts three({.count = 3});
  const auto ended = run_processes(3,
                                   [&](Communicator& comm) -> std::string {
                                     comm.barrier();
                                     sign(std::to_string(comm.rank())).give();
                                     all_reduce_forever(comm);
                                     return "it went on";
                                   },
                                   {.engine = "gloo",
                                    .timeout = milliseconds(3000),
                                    .hosts = &three,
                                    .meanwhile = [&](const std::vector<int>&) {
                                      for (const char* rank : {"0", "1", "2"})
                                        EXPECT_TRUE(sign(rank).await());
                                      three.cut_between(1, 2);
                                    }});
  for (const auto& rank : ended) EXPECT_THAT(rank.text, HasSubstr("within the timeout"));
}

TEST_F(BetweenHostsCut, ThatIsMendedInTimeDoesNoHarm) {
  const auto mended = sign("mended");
  expect_success(run(
      [&](Communicator& comm) -> std::string {
        sign(std::to_string(comm.rank())).give();
        for (std::vector<int32_t> over(1); over[0] == 0;) {
          over[0] = mended.is_given() ? 1 : 0;
          comm.broadcast(over, 0);
          if (const auto problem = check_sum(comm, 100'000); !problem.empty()) return problem;
        }
        return "";
      },
      {.meanwhile = [&](const std::vector<int>&) {
        for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(sign(std::to_string(rank)).await());
        hosts().cut(1);
        std::this_thread::sleep_for(milliseconds(1500));  // long enough for lost packets and questions
        hosts().mend(1);
        mended.give();
      }}));
}

}  // namespace
}  // namespace lockstep::test
