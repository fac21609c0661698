// What collectives between hosts promise when ranks break.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "comms/between_hosts.h"

namespace lockstep::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kFarBelowTheTimeout = 30;  // seconds, of 60

class BetweenHostsFaults : public BetweenHosts {
 protected:
  /// `victim` is killed while all are in `act`; the others must name it.
  void expect_named(int victim, const std::function<void(Communicator&)>& act) {
    const auto ended = run([&](Communicator& comm) -> std::string {
      act(comm);
      return "it went on";
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      const Ended& one = ended[static_cast<size_t>(rank)];
      if (rank == victim) {
        EXPECT_TRUE(WIFSIGNALED(one.status));
        continue;
      }
      EXPECT_THAT(one.text, HasSubstr("rank " + std::to_string(victim) + " (pid "))
          << "on rank " << rank << ", status " << one.status;
      EXPECT_LT(one.seconds, kFarBelowTheTimeout);
    }
  }
};

void die_within() {
  std::thread([] {
    std::this_thread::sleep_for(milliseconds(30));  // somewhere within
    raise(SIGKILL);
  }).detach();
}

TEST_F(BetweenHostsFaults, ARankThatIsKilledBeforeTheFirstCallIsNamed) {
  for (const int victim : {0, 3}) {
    expect_named(victim, [victim](Communicator& comm) {
      if (comm.rank() == victim) raise(SIGKILL);
      comm.barrier();
    });
  }
}

TEST_F(BetweenHostsFaults, ARankThatIsKilledWithinACallIsNamed) {
  for (const int victim : {0, 3}) {
    expect_named(victim, [victim](Communicator& comm) {
      if (comm.rank() == victim) die_within();
      std::vector<float> data(1 << 20);
      for (;;) comm.all_reduce(data);
    });
  }
}

TEST_F(BetweenHostsFaults, ARankThatIsKilledInABarrierIsNamed) {
  for (const int victim : {0, 3}) {
    expect_named(victim, [victim](Communicator& comm) {
      if (comm.rank() == victim) die_within();
      for (;;) comm.barrier();
    });
  }
}

TEST_F(BetweenHostsFaults, ARankThatLeavesBeforeTheFirstCallIsNamed) {
  const auto ended = run([](Communicator& comm) -> std::string {
    if (comm.rank() == 3) return "";
    comm.barrier();
    return "it went on";
  });
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(ended[static_cast<size_t>(rank)].text, HasSubstr("rank 3"));
    EXPECT_LT(ended[static_cast<size_t>(rank)].seconds, kFarBelowTheTimeout);
  }
}

TEST_F(BetweenHostsFaults, AStoppedRankIsNamedAtTheTimeout) {
  const auto ended = run(
      [](Communicator& comm) -> std::string {
        comm.barrier();
        if (comm.rank() == 3) raise(SIGSTOP);
        comm.barrier();
        return "it went on";
      },
      {.timeout = milliseconds(4000), .meanwhile = [](const std::vector<int>& pids) {
         int status = 0;
         waitpid(pids[3], &status, WUNTRACED);
         siginfo_t info = {};
         waitid(P_PID, static_cast<id_t>(pids[1]), &info, WEXITED | WNOWAIT);
         kill(pids[3], SIGCONT);
       }});
  for (const auto& rank : ended) {
    EXPECT_THAT(rank.text, AllOf(HasSubstr("rank 3 did not "), HasSubstr("within the timeout")));
  }
}

TEST_F(BetweenHostsFaults, DifferentCallsAreTheSameErrorEverywhere) {
  const auto ended = run([](Communicator& comm) -> std::string {
    std::vector<float> data(comm.rank() == 3 ? 4000 : 4096);
    comm.all_reduce(data);
    return "it went on";
  });
  for (const auto& rank : ended) {
    EXPECT_THAT(rank.text,
                HasSubstr("(sum of 4000 float32, algorithm all-to-all); hint: all ranks must make"));
    EXPECT_THAT(rank.text, HasSubstr("(sum of 4096 float32, algorithm all-to-all)"));
    EXPECT_LT(rank.seconds, kFarBelowTheTimeout);
  }
}

TEST_F(BetweenHostsFaults, AnAbortFromAnotherThreadWakesEverybody) {
  const auto ended = run([](Communicator& comm) -> std::string {
    std::thread other;
    if (comm.rank() == 2) {
      other = std::thread([&] {
        std::this_thread::sleep_for(milliseconds(30));  // somewhere within
        comm.abort("enough");
      });
    }
    try {
      for (;;) comm.barrier();
    } catch (const std::exception& error) {
      if (other.joinable()) other.join();
      return error.what();
    }
  });
  for (const auto& rank : ended) EXPECT_THAT(rank.text, HasSubstr("rank 2 ended the communication: enough"));
}

TEST_F(BetweenHostsFaults, AHostWithAnotherTokenIsRefusedAndBothSidesSaySo) {
  const auto ended = run([](Communicator&) { return "it went on"; },
                         {.timeout = milliseconds(2000), .before = [](const Identity& identity) {
                            if (identity.node_rank == 1) setenv("LOCKSTEP_TOKEN", "another", 1);
                          }});
  EXPECT_THAT(ended[0].text, AllOf(HasSubstr("ranks 2 and 3 did not come"), HasSubstr("LOCKSTEP_TOKEN")));
  for (const size_t rank : {2, 3}) {
    EXPECT_THAT(ended[rank].text, HasSubstr("hint: export the same LOCKSTEP_TOKEN on every host"));
  }
}

}  // namespace
}  // namespace lockstep::test
