// What collectives over Gloo promise when things break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "comms/contract.h"
#include "comms/run_processes.h"

namespace lockstep::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

using Act = std::function<void(Communicator&)>;

void all_reduce_forever(Communicator& comm, size_t count) {
  std::vector<float> data(count);
  for (;;) comm.all_reduce(data);
}

TEST(GlooFaults, AKilledRankIsNamedByAllOthersAtOnce) {
  const std::vector<std::pair<const char*, Act>> cases = {
      {"first call", [](Communicator& comm) { comm.barrier(); }},
      {"large", [](Communicator& comm) { all_reduce_forever(comm, 1 << 20); }},
      {"tiny", [](Communicator& comm) { all_reduce_forever(comm, 1); }},
      {"barrier",
       [](Communicator& comm) {
         for (;;) comm.barrier();
       }},
  };
  for (const auto& [name, act] : cases) {
    for (const int victim : {0, 2}) {
      const bool at_once = std::string(name) == "first call";
      const auto ended =
          run_processes(3,
                        [&, act = act](Communicator& comm) -> std::string {
                          if (comm.rank() == victim) {
                            if (at_once) raise(SIGKILL);
                            std::thread([] {
                              std::this_thread::sleep_for(milliseconds(30));  // somewhere within
                              raise(SIGKILL);
                            }).detach();
                          }
                          act(comm);
                          return "it went on";
                        },
                        {.engine = "gloo"});
      for (int rank = 0; rank < 3; ++rank) {
        const Ended& one = ended[static_cast<size_t>(rank)];
        if (rank == victim) {
          EXPECT_TRUE(WIFSIGNALED(one.status)) << name;
          continue;
        }
        EXPECT_THAT(one.text, HasSubstr("rank " + std::to_string(victim) + " (pid "))
            << name << ", status " << one.status;
        EXPECT_LT(one.seconds, 30) << name;  // far below the timeout of 60 s
      }
    }
  }
}

TEST(GlooFaults, AStoppedRankIsNamedAtTheTimeout) {
  for (const size_t count : {size_t{1}, size_t{1} << 20}) {
    const auto ended = run_processes(
        2,
        [count](Communicator& comm) -> std::string {
          comm.barrier();
          if (comm.rank() == 1) raise(SIGSTOP);
          all_reduce_forever(comm, count);
          return "it went on";
        },
        {.engine = "gloo", .timeout = milliseconds(5000), .meanwhile = [](const std::vector<int>& pids) {
           int status = 0;
           waitpid(pids[1], &status, WUNTRACED);
           siginfo_t info = {};
           waitid(P_PID, static_cast<id_t>(pids[0]), &info, WEXITED | WNOWAIT);  // rank 0 gives up first
           kill(pids[1], SIGCONT);
         }});
    EXPECT_THAT(ended[0].text, AllOf(HasSubstr("all_reduce #2 on rank 0: rank 1 did not "),
                                     HasSubstr("within the timeout")));
    EXPECT_THAT(ended[1].text, HasSubstr("rank 1 did not ")) << "the late rank hears of it";
  }
}

TEST(GlooFaults, ARankThatIsContinuedInTimeGoesOn) {
  const auto ended = run_processes(2,
                                   [](Communicator& comm) -> std::string {
                                     std::vector<float> data(1000, 1.0F);
                                     comm.barrier();
                                     if (comm.rank() == 1) raise(SIGSTOP);
                                     comm.all_reduce(data);
                                     return data[999] == 2 ? "" : "wrong";
                                   },
                                   {.engine = "gloo", .meanwhile = [](const std::vector<int>& pids) {
                                      int status = 0;
                                      waitpid(pids[1], &status, WUNTRACED);
                                      std::this_thread::sleep_for(milliseconds(600));  // long enough to ask
                                      kill(pids[1], SIGCONT);
                                    }});
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

TEST(GlooFaults, DifferentCallsAreTheSameErrorEverywhere) {
  const std::vector<std::pair<Act, const char*>> cases = {
      {[](Communicator& comm) {
         std::vector<float> data(comm.rank() == 0 ? 4096 : 4000);
         comm.all_reduce(data);
       },
       "all_reduce #1: rank 0 called all_reduce #1 (sum of 4096 float32, algorithm all-to-all), rank 1 "
       "called "
       "all_reduce #1 "
       "(sum of 4000 float32, algorithm all-to-all); hint: "},
      {[](Communicator& comm) {  // plans that send to each other in other rounds
         std::vector<float> data(1000);
         comm.all_reduce(data, ReduceOp::kSum, {.algorithm = comm.rank() == 0 ? "all-to-all" : "direct"});
       },
       "all_reduce #1: rank 0 called all_reduce #1 (sum of 1000 float32, algorithm all-to-all), rank 1 "
       "called all_reduce #1 (sum of 1000 float32, algorithm direct); hint: "},
      {[](Communicator& comm) {
         std::vector<float> data(1000);
         comm.all_reduce(data, comm.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax);
       },
       "rank 1 called all_reduce #1 (max of 1000 float32, algorithm all-to-all); hint: "},
      {[](Communicator& comm) {
         std::vector<float> floats(1000);
         std::vector<int32_t> integers(1000);
         comm.all_reduce(comm.rank() == 0 ? Buffer(floats) : Buffer(integers));
       },
       "rank 1 called all_reduce #1 (sum of 1000 int32, algorithm all-to-all); hint: "},
      {[](Communicator& comm) {
         std::vector<float> data(1000);
         comm.rank() == 0 ? comm.all_reduce(data) : comm.barrier();
       },
       "rank 1 called barrier #1 (algorithm dissemination); hint: "},
      {[](Communicator& comm) {  // both only send
         std::vector<float> data(1000);
         comm.broadcast(data, comm.rank());
       },
       "broadcast #1: rank 0 called broadcast #1 (1000 float32, root 0, algorithm binomial), rank 1 called "
       "broadcast #1 "
       "(1000 float32, root 1, algorithm binomial); hint: "},
      {[](Communicator& comm) {  // both only receive
         std::vector<float> data(1000);
         comm.broadcast(data, 1 - comm.rank());
       },
       "broadcast #1: rank 0 called broadcast #1 (1000 float32, root 1, algorithm binomial), rank 1 called "
       "broadcast #1 "
       "(1000 float32, root 0, algorithm binomial); hint: "},
  };
  for (const auto& [act, text] : cases) {
    const auto ended = run_processes(2,
                                     [act = act](Communicator& comm) -> std::string {
                                       act(comm);
                                       comm.barrier();
                                       return "it went on";
                                     },
                                     {.engine = "gloo"});
    for (const auto& rank : ended) {
      EXPECT_THAT(rank.text, HasSubstr(text));
      EXPECT_LT(rank.seconds, 30);  // far below the timeout of 60 s
    }
  }
}

TEST(GlooFaults, AnAbortFromAnotherThreadWakesEverybody) {
  const auto ended = run_processes(3,
                                   [](Communicator& comm) -> std::string {
                                     if (comm.rank() == 1) std::thread([&] { comm.abort("enough"); }).join();
                                     comm.barrier();
                                     return "it went on";
                                   },
                                   {.engine = "gloo"});
  for (const auto& rank : ended) EXPECT_THAT(rank.text, HasSubstr("rank 1 ended the communication: enough"));
}

TEST(GlooFaults, ARankThatLeavesIsNamed) {
  const auto ended = run_processes(2,
                                   [](Communicator& comm) -> std::string {
                                     if (comm.rank() == 1) return "";
                                     comm.barrier();
                                     return "it went on";
                                   },
                                   {.engine = "gloo"});
  EXPECT_THAT(ended[0].text, AnyOf(HasSubstr("rank 1 has left the job"),
                                   HasSubstr("hint: that rank has left before this call")));
  EXPECT_LT(ended[0].seconds, 30);  // far below the timeout of 60 s
}

TEST(GlooFaults, EveryFaultIsTheSameErrorOnAllRanks) {
  for (const Fault& fault : faults()) {
    for (const auto& rank :
         run_processes(fault.world, fault.act, {.engine = "gloo", .timeout = fault.timeout})) {
      EXPECT_EQ(rank.text, "") << fault.name;
      EXPECT_LT(rank.seconds, 40) << fault.name;  // below the timeout of 60 s
    }
  }
}

TEST(GlooFaults, AForkedChildGetsClearErrorsAndEndsWell) {
  for (const auto& rank : run_processes(3,
                                        [](Communicator& comm) {
                                          std::string text;
                                          for (const auto& problem : check_forked_child(comm))
                                            text += problem + "\n";
                                          return text;
                                        },
                                        {.engine = "gloo"})) {
    EXPECT_EQ(rank.text, "");
  }
}

TEST(GlooFaults, AChildThatIsForkedDoesNoHarm) {
  const auto ended = run_processes(2,
                                   [](Communicator& comm) -> std::string {
                                     for (int i = 0; i < 30; ++i) {
                                       std::vector<float> data(1000, 1.0F);
                                       const pid_t child = i % 10 == 0 ? fork() : -1;
                                       if (child == 0) _exit(0);
                                       comm.all_reduce(data);
                                       if (child > 0) waitpid(child, nullptr, 0);
                                       if (data[0] != 2) return "wrong";
                                     }
                                     return "";
                                   },
                                   {.engine = "gloo"});
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

}  // namespace
}  // namespace lockstep::test
