// Collectives between hosts that are network namespaces: what they give, and where they listen.
#include "comms/between_hosts.h"

#include <signal.h>
#include <sys/wait.h>

#include <thread>

#include "comms/contract.h"
#include "support/host_sockets.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST_F(BetweenHosts, GlooKeepsTheContract) {
  expect_success(run(check_all));
}

TEST_F(BetweenHosts, AJobRunsOverAShapedLink) {
  const Hosts slow({.rate = "200mbit"});
  expect_success(run_processes(2, [](Communicator& comm) { return check_sum(comm, 1'000'000); },
                               {.engine = "gloo", .hosts = &slow}));
}

/// Calls that take several times as long as their timeout, since the link is slow. Its queue is long: with a
/// short one, losses silence one of several connections for seconds.
constexpr CallOptions kHasty = {.timeout = std::chrono::seconds(4)};
const Hosts::Options kSlow = {.rate = "8mbit", .latency = "500ms"};

TEST_F(BetweenHosts, AMessageMayTakeLongerThanTheTimeoutWhileItMoves) {
  const Hosts slow(kSlow);
  expect_success(run_processes(2,
                               [](Communicator& comm) -> std::string {
                                 const int other = 1 - comm.rank();
                                 std::vector<std::vector<float>> outs(3), ins(3);
                                 std::vector<Work> works;
                                 for (size_t k = 0; k < 3; ++k) {
                                   outs[k].assign(k == 1 ? 10 : 1'500'000, static_cast<float>(k) + 1);
                                   ins[k].resize(outs[k].size());
                                   works.push_back(comm.isend(outs[k], other, 0, kHasty));
                                   works.push_back(comm.irecv(ins[k], other, 0, kHasty));
                                 }
                                 for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
                                 return ins == outs ? "" : "wrong data";
                               },
                               {.engine = "gloo", .hosts = &slow}));
}

TEST_F(BetweenHosts, ACollectiveMayTakeLongerThanTheTimeoutWhileAnyRanksDataMoves) {
  // While rank 0 receives over the slow link, rank 1, which has sent, waits for its answer.
  const Hosts slow(kSlow);
  for (const char* algorithm : {"", "naive"}) {
    expect_success(run_processes(kRanks,
                                 [&](Communicator& comm) -> std::string {
                                   std::vector<float> data(1'500'000, static_cast<float>(1 << comm.rank()));
                                   comm.all_reduce(data, ReduceOp::kSum,
                                                   {.timeout = kHasty.timeout, .algorithm = algorithm});
                                   return data.front() == 15 && data.back() == 15 ? "" : "wrong sum";
                                 },
                                 {.engine = "gloo", .hosts = &slow}));
  }
}

TEST_F(BetweenHosts, AMessageThatStopsInTheMiddleMeetsItsTimeout) {
  const Hosts slow({.rate = "80mbit"});
  const auto ended =
      run_processes(2,
                    [](Communicator& comm) -> std::string {
                      std::vector<float> data(20'000'000);  // far more than kernels hold on the way
                      std::thread stops;
                      if (comm.rank() == 1) {
                        stops = std::thread([] {
                          std::this_thread::sleep_for(std::chrono::seconds(1));  // somewhere within
                          raise(SIGSTOP);
                        });
                        comm.recv(data, 0);
                      } else {
                        comm.send(data, 1, 0, kHasty);
                      }
                      return "it went on";
                    },
                    {.engine = "gloo", .hosts = &slow, .meanwhile = [](const std::vector<int>& pids) {
                       // Rank 0 has given up: the other may end, too.
                       siginfo_t info = {};
                       waitid(P_PID, static_cast<id_t>(pids[0]), &info, WEXITED | WNOWAIT);
                       kill(pids[1], SIGKILL);
                     }});
  EXPECT_THAT(ended[0].text, HasSubstr("rank 1 did not receive within the timeout"));
  EXPECT_LT(ended[0].seconds, 50);
}

TEST_F(BetweenHosts, GlooIsChosenThoughBootIdAndHostNameAreTheSame) {
  // Two nodes of `lockstep run`, each in a namespace of its own on this machine.
  Child job(
      {LOCKSTEP_HOSTS, "--", LOCKSTEP_COMMAND, "run", "--nproc-per-node", "1", LOCKSTEP_ACTOR, "engine"});
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_THAT(job.output(), HasSubstr("gloo\n"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(BetweenHosts, NobodyListensButOnTheNamedAddress) {
  const auto is_over = [](pid_t pid) {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
           info.si_pid == pid;
  };
  std::set<std::string> seen[2];
  expect_success(run(
      [&](Communicator& comm) {
        const std::string problem = check_sum(comm, 1000);
        sign("met" + std::to_string(comm.rank())).give();
        sign("looked").await();
        return problem;
      },
      {.before =
           [&](const Identity& identity) {
             if (identity.rank == 3) sign("seen waiting").await();
           },
       .meanwhile =
           [&](const std::vector<int>& pids) {
             // Through set-up, and once in the middle of the job.
             for (bool is_last = false; !is_last && !is_over(pids[0]);) {
               is_last = sign("met0").is_given() && sign("met3").is_given();
               for (const int host : {0, 1}) seen[host].merge(listeners_on(hosts(), host));
               if (seen[0].contains("10.77.0.1:29501")) sign("seen waiting").give();
             }
             sign("looked").give();
           }}));
  EXPECT_THAT(seen[0], testing::Contains("10.77.0.1:29501"));
  for (const int host : {0, 1})
    EXPECT_THAT(seen[host], testing::Each(StartsWith(Hosts::address(host) + ":")));
}

TEST_F(BetweenHosts, TwoJobsRunAtOnce) {
  const auto other = sign("the other job is over");
  expect_success(run(
      [&](Communicator& comm) -> std::string {
        for (std::vector<int32_t> over(1); over[0] == 0;) {
          over[0] = other.is_given() ? 1 : 0;
          comm.broadcast(over, 0);
          if (const auto problem = check_sum(comm, 1000); !problem.empty()) return problem;
        }
        return "";
      },
      {.meanwhile = [&](const std::vector<int>&) {
        expect_success(run([](Communicator& comm) { return check_sum(comm, 100'000); },
                           {.before = [](Identity& identity) { identity.master_port = 29600; }}));
        other.give();
      }}));
}

}  // namespace
}  // namespace lockstep::test
