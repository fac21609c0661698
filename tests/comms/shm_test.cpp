// The contract of collectives, and what they promise when things break, on real processes with shared memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "comms/contract.h"
#include "comms/run_processes.h"
#include "launch/ports.h"
#include "lockstep/comms/shared_memory.h"
#include "support/memory_limit.h"
#include "support/sanitizers.h"
#include "transport/engines.h"
#include "transport/meet_job.h"
#include "transport/shm.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A buffer of this many floats that collectives use in place.
struct Floats {
  Floats(Communicator& comm, int64_t wanted)
      : memory(comm.allocate(static_cast<size_t>(wanted) * sizeof(float))), count(wanted) {
    std::fill_n(data(), count, 1.0F);
  }
  float* data() const { return static_cast<float*>(memory.get()); }
  Buffer buffer() const { return {data(), count, DataType::kFloat32}; }

  std::shared_ptr<void> memory;
  int64_t count;
};

class Shm : public testing::TestWithParam<int> {};

TEST_P(Shm, KeepsTheContract) {
  for (const auto& rank : run_processes(GetParam(), check_all)) {
    EXPECT_EQ(rank.status, 0);
    EXPECT_EQ(rank.text, "");
  }
}

// ThreadSanitizer does not see from one process into another; the same protocol runs on threads.
INSTANTIATE_TEST_SUITE_P(Worlds, Shm,
                         testing::ValuesIn(kThreadSanitizer ? std::vector{2, 3}
                                                            : std::vector{1, 2, 3, 4, 5, 7, 8}),
                         testing::PrintToStringParamName());

TEST(ShmFaults, AKilledRankIsNamedByAllOthersAtOnce) {
  // At entry; in the middle of large and of tiny calls; in a barrier; before the first call.
  using Act = std::function<void(Communicator&)>;
  const auto forever = [](int64_t count) -> Act {
    return [count](Communicator& comm) {
      const Floats floats(comm, count);
      for (;;) comm.all_reduce(floats.buffer());
    };
  };
  const std::vector<std::pair<const char*, Act>> cases = {
      {"first call", [](Communicator& comm) { comm.barrier(); }},
      {"large", forever(1 << 20)},
      {"tiny", forever(1)},
      {"messages",
       [](Communicator& comm) {
         const Floats floats(comm, 100'000);
         for (;;) comm.all_reduce(floats.buffer(), ReduceOp::kSum, {.algorithm = "ring"});
       }},
      {"barrier",
       [](Communicator& comm) {
         for (;;) comm.barrier();
       }},
  };
  for (const auto& [name, act] : cases) {
    const bool at_once = std::string(name) == "first call";
    const auto ended = run_processes(3, [&, work = act](Communicator& comm) -> std::string {
      if (comm.rank() == 2) {
        if (at_once) raise(SIGKILL);
        std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));  // somewhere within
          raise(SIGKILL);
        }).detach();
      }
      work(comm);
      return "it went on";
    });
    EXPECT_TRUE(WIFSIGNALED(ended[2].status)) << name;
    for (const int survivor : {0, 1}) {
      EXPECT_THAT(ended[static_cast<size_t>(survivor)].text, HasSubstr("rank 2 (pid ")) << name;
      EXPECT_LT(ended[static_cast<size_t>(survivor)].seconds, 30) << name;  // far below the timeout of 60 s
    }
  }
}

TEST(ShmFaults, RankZeroMayDieToo) {
  const auto ended = run_processes(3, [](Communicator& comm) -> std::string {
    if (comm.rank() == 0) raise(SIGKILL);
    comm.barrier();
    return "it went on";
  });
  for (const int survivor : {1, 2})
    EXPECT_THAT(ended[static_cast<size_t>(survivor)].text, HasSubstr("rank 0 (pid "));
}

TEST(ShmFaults, AStoppedRankIsNamedAtTheTimeout) {
  const auto ended = run_processes(
      2,
      [](Communicator& comm) -> std::string {
        const Floats floats(comm, 1000);
        comm.barrier();
        if (comm.rank() == 1) raise(SIGSTOP);
        for (int i = 0; i < 10; ++i) comm.all_reduce(floats.buffer());
        return "it went on";
      },
      {.timeout = std::chrono::milliseconds(5000), .meanwhile = [](const std::vector<int>& pids) {
         int status = 0;
         waitpid(pids[1], &status, WUNTRACED);
         siginfo_t info = {};
         waitid(P_PID, static_cast<id_t>(pids[0]), &info, WEXITED | WNOWAIT);  // rank 0 gives up first
         kill(pids[1], SIGCONT);
       }});
  EXPECT_THAT(ended[0].text, HasSubstr("all_reduce #2 on rank 0: rank 1 did not come within the timeout"));
  EXPECT_THAT(ended[1].text, HasSubstr("rank 1 did not come within the timeout"))
      << "the late rank hears of it";
}

TEST(ShmFaults, ARankThatIsContinuedInTimeGoesOn) {
  const auto ended = run_processes(2,
                                   [](Communicator& comm) -> std::string {
                                     Floats floats(comm, 1000);
                                     comm.barrier();
                                     if (comm.rank() == 1) raise(SIGSTOP);
                                     comm.all_reduce(floats.buffer());
                                     return floats.data()[999] == 2 ? "" : "wrong";
                                   },
                                   {.meanwhile = [](const std::vector<int>& pids) {
                                     int status = 0;
                                     waitpid(pids[1], &status, WUNTRACED);
                                     kill(pids[1], SIGCONT);
                                   }});
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

TEST(ShmFaults, AnAbortFromAnotherThreadWakesEverybody) {
  const auto ended = run_processes(3, [](Communicator& comm) -> std::string {
    if (comm.rank() == 1) std::thread([&] { comm.abort("enough"); }).join();
    comm.barrier();
    return "it went on";
  });
  for (const auto& rank : ended) EXPECT_THAT(rank.text, HasSubstr("rank 1 ended the communication: enough"));
}

TEST(ShmFaults, DifferentCallsAreTheSameErrorEverywhere) {
  const std::string push = "(sum of 4096 float32, algorithm push)";
  const std::vector<std::pair<std::function<void(Communicator&)>, std::string>> cases = {
      {[](Communicator& comm) {
         const Floats floats(comm, comm.rank() == 0 ? 4096 : 4000);
         comm.all_reduce(floats.buffer());
       },
       "all_reduce #1: rank 0 called all_reduce #1 " + push +
           ", rank 1 called all_reduce #1 (sum of 4000 float32, algorithm push); hint: "},
      {[](Communicator& comm) {
         Buffer buffer = Floats(comm, 4096).buffer();
         if (comm.rank() == 1) buffer.type = DataType::kInt32;
         comm.all_reduce(buffer);
       },
       "rank 0 called all_reduce #1 " + push +
           ", rank 1 called all_reduce #1 (sum of 4096 int32, algorithm push)"},
      {[](Communicator& comm) {
         const Floats floats(comm, 4096);
         comm.all_reduce(floats.buffer(), comm.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax);
       },
       "rank 0 called all_reduce #1 " + push +
           ", rank 1 called all_reduce #1 (max of 4096 float32, algorithm push)"},
      {[](Communicator& comm) {
         const Floats floats(comm, 4096);
         comm.broadcast(floats.buffer(), comm.rank());
       },
       "rank 0 called broadcast #1 (4096 float32, root 0, algorithm pull), rank 1 called broadcast #1 (4096 "
       "float32, root 1, algorithm pull)"},
      {[](Communicator& comm) {
         const Floats floats(comm, 4096);
         comm.rank() == 0 ? comm.all_reduce(floats.buffer()) : comm.barrier();
       },
       "rank 0 called all_reduce #1 " + push + ", rank 1 called barrier #1 (algorithm flags)"},
  };
  for (const auto& [act, text] : cases) {
    const auto ended = run_processes(2, [work = act](Communicator& comm) -> std::string {
      work(comm);
      comm.barrier();
      comm.barrier();
      return "it went on";
    });
    for (const auto& rank : ended) EXPECT_THAT(rank.text, HasSubstr(text));
  }
}

TEST(ShmFaults, ARankOfAnEarlierAttemptIsNotTakenForOneOfThis) {
  const std::string job = fmt::format("attempts {}", getpid());
  Identity late = {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2, .job_id = job};
  const pid_t straggler = fork();
  if (straggler == 0) {
    try {
      init_distributed(late, {.engine = "shm"});
      _exit(1);
    } catch (const std::exception&) {
      _exit(0);
    }
  }
  const auto ended = run_processes(2,
                                   [](Communicator& comm) -> std::string {
                                     std::vector<float> data = {static_cast<float>(comm.rank() + 1)};
                                     comm.all_reduce(data);
                                     return data[0] == 3 ? "" : "wrong";
                                   },
                                   {.before = [&](Identity& identity) {
                                     identity.job_id = job;
                                     identity.restart_count = 1;
                                   }});
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
  int status = 0;
  EXPECT_EQ(waitpid(straggler, &status, WNOHANG), 0) << "it waits for its own";
  kill(straggler, SIGKILL);
  waitpid(straggler, &status, 0);
}

TEST(ShmStart, TasksOfOneNodeUnderSrunShareMemory) {
  const auto ended = run_processes(2,
                                   [](Communicator& comm) -> std::string {
                                     std::vector<float> data = {1.0F};
                                     comm.all_reduce(data);
                                     return fmt::format("{} {}", comm.engine(), data[0]);
                                   },
                                   {.engine = "", .before = [](Identity& identity) {
                                      const std::string rank = std::to_string(identity.rank);
                                      identity = identify({{"SLURM_JOB_ID", std::to_string(getppid())},
                                                           {"SLURM_STEP_ID", "0"},
                                                           {"SLURM_STEP_NODELIST", "tux1"},
                                                           {"SLURM_STEP_NUM_NODES", "1"},
                                                           {"SLURM_STEP_NUM_TASKS", "2"},
                                                           {"SLURM_STEP_TASKS_PER_NODE", "2"},
                                                           {"SLURM_NTASKS", "2"},
                                                           {"SLURM_PROCID", rank},
                                                           {"SLURM_LOCALID", rank},
                                                           {"SLURM_NODEID", "0"}});
                                    }});
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "shm 2");
}

/// What plain torchrun gives a rank of a job of two: its run id is "none" in every job.
Environment plain_torchrun(int rank, const std::string& address, int port) {
  const std::string number = std::to_string(rank);
  return {{"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"RANK", number},
          {"LOCAL_RANK", number},
          {"WORLD_SIZE", "2"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "0"},
          {"GROUP_WORLD_SIZE", "1"},
          {"MASTER_ADDR", address},
          {"MASTER_PORT", std::to_string(port)}};
}

/// The same by hand: there is no id.
Environment by_hand(int rank, const std::string& address, int port) {
  Environment environment = plain_torchrun(rank, address, port);
  environment.erase("TORCHELASTIC_RUN_ID");
  environment["NNODES"] = "1";
  return environment;
}

TEST(ShmStart, JobsThatDifferInTheirPortAloneDoNotMeet) {
  // Rank 0 of one job and rank 1 of the other would meet at once; the missing rank of each comes never.
  const int port = launch::find_free_port();
  for (auto* const environment : {plain_torchrun, by_hand}) {
    const auto ended =
        run_processes(2, [](Communicator&) -> std::string { return "met"; },
                      {.timeout = std::chrono::milliseconds(1500), .before = [&](Identity& identity) {
                         identity = identify(environment(identity.rank, "127.0.0.1", port + identity.rank));
                       }});
    EXPECT_THAT(ended[0].text, HasSubstr("rank 1 did not come within "));
    EXPECT_THAT(ended[1].text, HasSubstr("rank 0 did not come within "));
  }
}

TEST(ShmStart, RanksThatSpellTheMastersAddressDifferentlyMeet) {
  const int port = launch::find_free_port();
  for (auto* const environment : {plain_torchrun, by_hand}) {
    const auto ended = run_processes(
        2, [](Communicator& comm) -> std::string { return std::to_string(comm.world_size()); },
        {.before = [&](Identity& identity) {
          identity =
              identify(environment(identity.rank, identity.rank == 0 ? "localhost" : "127.0.0.1", port));
        }});
    for (const auto& rank : ended) EXPECT_EQ(rank.text, "2");
  }
}

TEST(ShmStart, AJobWithoutIdAndPortIsRefused) {
  const auto ended = run_processes(2, [](Communicator&) -> std::string { return "met"; },
                                   {.before = [](Identity& identity) { identity.job_id.clear(); }});
  for (const auto& rank : ended)
    EXPECT_THAT(rank.text, HasSubstr("neither a job id nor MASTER_PORT is set; hint: "));
}

TEST(ShmFaults, ARankThatWaitsLongSleeps) {
  const auto ended = run_processes(2, [](Communicator& comm) -> std::string {
    comm.barrier();
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    comm.barrier();
    timespec used = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    const double seconds = static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
    return seconds < 0.5 ? "" : fmt::format("{} s of CPU", seconds);
  });
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

TEST(ShmFaults, ARankThatLeavesIsNamed) {
  const auto ended = run_processes(2,
                                   [](Communicator& comm) -> std::string {
                                     if (comm.rank() == 1) return "";
                                     comm.barrier();
                                     return "it went on";
                                   },
                                   {.timeout = std::chrono::minutes(5)});
  EXPECT_THAT(ended[0].text, HasSubstr("barrier #1 on rank 0: rank 1 has left the job; hint: "));
}

TEST(ShmFaults, EveryFaultIsTheSameErrorOnAllRanks) {
  for (const Fault& fault : faults()) {
    for (const auto& rank : run_processes(fault.world, fault.act, {.timeout = fault.timeout})) {
      EXPECT_EQ(rank.text, "") << fault.name;
      EXPECT_LT(rank.seconds, 40) << fault.name;  // below the timeout of 60 s
    }
  }
}

TEST(ShmFaults, AForkedChildGetsClearErrorsAndEndsWell) {
  if (kSanitizer)
    GTEST_SKIP() << "the sanitizer's allocator may be locked by another thread when a process forks";
  for (const auto& rank : run_processes(3, [](Communicator& comm) {
         std::string text;
         for (const auto& problem : check_forked_child(comm)) text += problem + "\n";
         return text;
       })) {
    EXPECT_EQ(rank.text, "");
  }
}

TEST(ShmFaults, AForkedChildMayReturnAsItsParentDoes) {
  const auto ended = run_processes(2, [](Communicator& comm) -> std::string {
    comm.ibarrier();
    const pid_t child = fork();
    if (child == 0) return "";
    int status = 0;
    waitpid(child, &status, 0);
    comm.barrier();
    return status == 0 ? "" : fmt::format("status {}", status);
  });
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

TEST(ShmFaults, AChildThatIsForkedDoesNoHarm) {
  const auto ended = run_processes(2, [](Communicator& comm) -> std::string {
    const Floats floats(comm, 1000);
    for (int i = 0; i < 30; ++i) {
      std::fill_n(floats.data(), floats.count, 1.0F);
      const pid_t child = i % 10 == 0 ? fork() : -1;
      if (child == 0) _exit(0);
      comm.all_reduce(floats.buffer());
      if (child > 0) waitpid(child, nullptr, 0);
      if (floats.data()[0] != 2) return "wrong";
    }
    return "";
  });
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

TEST(ShmFaults, TooMuchMemoryIsAnErrorNotASignal) {
  const auto ended = run_processes(2, [](Communicator& comm) -> std::string {
    try {
      comm.allocate(size_t{1} << 45);
    } catch (const std::exception& error) {
      comm.barrier();  // and all is well
      return error.what();
    }
    return "";
  });
  for (const auto& rank : ended) EXPECT_THAT(rank.text, HasSubstr("shared memory: "));
}

TEST(ShmFaults, ALimitOfFilesIsAnErrorNotASignal) {
  const auto under = [](rlim_t bytes) {
    return run_processes(2,
                         [](Communicator& comm) -> std::string {
                           std::vector<float> data(3000, 1.0F);
                           comm.all_reduce(data);
                           return data[2999] == 2 ? "" : "wrong";
                         },
                         {.before = [bytes](Identity&) {
                           const rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
                           setrlimit(RLIMIT_FSIZE, &limit);
                         }});
  };
  for (const auto& rank : under(100 << 10)) EXPECT_THAT(rank.text, HasSubstr("(ulimit -f); hint: "));
  for (const auto& rank : under(100 << 20)) EXPECT_EQ(rank.text, "") << "a smaller arena will do";
}

TEST(ShmFaults, MemoryOfAPeerThatMayShrinkIsRefused) {
  const std::string job = fmt::format("unsealed {}", getpid());
  const auto ended = run_bare_processes(2, [&](int rank) -> std::string {
    const Identity identity = {
        .rank = rank, .world_size = 2, .local_rank = rank, .local_world_size = 2, .job_id = job};
    const auto deadline = transport::Control::Clock::now() + std::chrono::minutes(1);
    if (rank == 0) return transport::connect_shm(identity, deadline)->engine().data();
    const launch::UniqueFd memory(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (ftruncate(memory.get(), 1 << 30) != 0) return "ftruncate";
    const auto host = transport::meet_on_host(
        {.rank = 1, .world = 2, .name = "shm " + transport::meeting_name(identity), .deadline = deadline},
        memory.get());
    host.control->all_gather("never", {0, 1}, "", deadline);  // until rank 0 has gone
    return "";
  });
  EXPECT_THAT(ended[0].text, HasSubstr("what rank 1 passed is not memory sealed against shrinking"));
}

TEST(ShmStart, TheLongestTimeoutIsForever) {
  constexpr auto kForever = std::chrono::milliseconds::max();
  const auto act = [&](Communicator& comm) -> std::string {
    const auto other = comm.split(0, comm.rank());
    std::vector<float> data(3000, 1.0F);
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));  // rank 0 waits
    for (const char* algorithm : {"", "ring"}) {
      comm.all_reduce(data, ReduceOp::kSum, {.timeout = kForever, .algorithm = algorithm});
    }
    comm.barrier();
    return data[2999] == 4 ? "" : "wrong";
  };
  for (const char* engine : {"shm", "gloo"}) {
    if (!transport::is_built(engine)) continue;
    for (const auto& rank : run_processes(2, act, {.engine = engine, .timeout = kForever})) {
      EXPECT_EQ(rank.text, "") << engine;
    }
  }
}

TEST(ShmStart, ATimeoutOfNothingIsRefused) {
  for (const auto timeout : {std::chrono::milliseconds(0), std::chrono::milliseconds(-5)}) {
    const auto ended =
        run_processes(1, [](Communicator&) -> std::string { return "it went on"; }, {.timeout = timeout});
    EXPECT_EQ(ended[0].text,
              fmt::format("InitOptions::timeout is {} ms; hint: give a time above 0", timeout.count()));
  }
}

TEST(ShmMemory, GroupsThatAreGoneKeepNone) {
  const auto ended = run_processes(3, [](Communicator& comm) -> std::string {
    const size_t before = shared_memory_use().used_bytes;
    for (int i = 0; i < 20; ++i) {
      {
        auto part = comm.split(comm.rank() % 2, comm.rank());
        std::vector<float> data = {1.0F};
        part->all_reduce(data);
        if (data[0] != static_cast<float>(part->world_size())) return "wrong";
      }
      comm.barrier();  // all have let go of it
      const size_t now = shared_memory_use().used_bytes;
      if (now != before) return fmt::format("{} bytes more after {} groups", now - before, i + 1);
      comm.barrier();
    }
    return "";
  });
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

TEST(ShmFaults, AControlGroupsMemoryLimitIsAnErrorNotASignal) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer's own memory would count";
  const MemoryLimit limit(size_t{160} << 20);
  if (!limit.why_not().empty()) GTEST_SKIP() << limit.why_not();
  const auto ended = run_processes(2,
                                   [](Communicator& comm) -> std::string {
                                     std::string text;
                                     try {
                                       comm.allocate(size_t{200} << 20);
                                     } catch (const std::exception& error) {
                                       text = error.what();
                                     }
                                     comm.barrier();
                                     // What is free is given back before the limit is reached.
                                     for (int i = 0; i < 20; ++i) {
                                       comm.allocate((size_t{20} + static_cast<size_t>(i)) << 20);
                                       comm.barrier();
                                     }
                                     return text;
                                   },
                                   {.before = [&](Identity&) { limit.enter(); }});
  for (const auto& rank : ended) {
    EXPECT_EQ(rank.status, 0);
    EXPECT_THAT(rank.text, AllOf(HasSubstr("shared memory: 200.0 MiB asked for, "),
                                 HasSubstr("within the control group's limit")));
  }
}

TEST(ShmFaults, AStormOfSignalsDisturbsNothing) {
  // From the rendezvous on, at the thread that meets and calls.
  const auto storm = [](Identity&) {
    struct sigaction action = {};
    action.sa_handler = [](int) {};  // without SA_RESTART: calls that wait are interrupted
    sigaction(SIGUSR1, &action, nullptr);
    std::thread([self = pthread_self()] {
      for (;;) {
        pthread_kill(self, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }).detach();
  };
  const auto ended = run_processes(3,
                                   [](Communicator& comm) -> std::string {
                                     const Floats floats(comm, 50'000);
                                     for (int i = 0; i < 300; ++i) {
                                       std::fill_n(floats.data(), floats.count, 1.0F);
                                       comm.all_reduce(floats.buffer());
                                       std::vector<float> data(3000, 1.0F);
                                       comm.all_reduce(data, ReduceOp::kSum, {.algorithm = "ring"});
                                       if (floats.data()[49'999] != 3 || data[2999] != 3) return "wrong";
                                     }
                                     return "";
                                   },
                                   {.before = storm});
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

TEST(ShmFaults, NothingIsLeftAfterEverybodyWasKilled) {
  run_processes(3, [](Communicator& comm) -> std::string {
    const Floats floats(comm, 1000);
    comm.barrier();
    raise(SIGKILL);
    return "";
  });
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("lockstep")));
  }
}

TEST(ShmFaults, TwoJobsAtOnceAreApart) {
  std::vector<Ended> first, second;
  const auto sum = [](Communicator& comm) -> std::string {
    for (int i = 0; i < 200; ++i) {
      std::vector<float> data(3000, 1.0F);
      comm.all_reduce(data);
      if (data[2999] != 2) return "wrong";
    }
    return "";
  };
  // The second job runs while the first one waits for its last rank.
  first =
      run_processes(2, sum, {.meanwhile = [&](const std::vector<int>&) { second = run_processes(2, sum); }});
  for (const auto& rank : first) EXPECT_EQ(rank.text, "");
  for (const auto& rank : second) EXPECT_EQ(rank.text, "");
}

TEST(ShmFaults, AMillionTinyAllReducesWithRandomDelaysAreRight) {
  constexpr int kCalls = kSanitizer ? 20'000 : 1'000'000;
  const auto ended = run_processes(2, [](Communicator& comm) -> std::string {
    std::minstd_rand random(static_cast<unsigned>(comm.rank() + 1));
    std::vector<int32_t> data(2);
    for (int i = 0; i < kCalls; ++i) {
      data = {i + comm.rank(), comm.rank()};
      for (unsigned spins = random() % 256; spins > 0; --spins)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      if (random() % 20'000 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
      comm.all_reduce(data);
      if (data[0] != 2 * i + 1 || data[1] != 1) return "call " + std::to_string(i) + " is wrong";
    }
    return "";
  });
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

}  // namespace
}  // namespace lockstep::test
