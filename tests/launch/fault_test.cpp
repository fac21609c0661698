// The launcher's promises under faults, on real processes: what fails first is named, and nothing is left.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "launch/launched.h"
#include "launch/process_tree.h"

namespace lockstep::test {
namespace {

using std::filesystem::exists;
using testing::HasSubstr;
using testing::Not;

std::string number(int value) {
  return std::to_string(value);
}

/// The child of `parent` that is not a zombie; 0 if there is none.
pid_t child_of(pid_t parent) {
  for (const pid_t pid : launch::living_descendants(parent)) {
    if (line_with(read_file("/proc/" + number(pid) + "/status"), "PPid:") == "PPid:\t" + number(parent))
      return pid;
  }
  return 0;
}

bool is_stopped(pid_t pid) {
  return line_with(read_file("/proc/" + number(pid) + "/status"), "State:").starts_with("State:\tT");
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Faults, ADeadRankEndsTheJobWithItsSignalAndNothingIsLeft) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "4"}, {"touch-mine", folder / "ready", "rank", "2", "await",
                                                 folder / "go", "die", number(SIGKILL), "all", "pause"}));
  ASSERT_TRUE(eventually(
      [&] { return exists(folder / "ready0") && exists(folder / "ready1") && exists(folder / "ready3"); }));
  const auto start = std::chrono::steady_clock::now();
  Child go({"touch", (folder / "go").string()});
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_LT(seconds_since(start), 10) << "promised: under 1 s when ranks obey SIGTERM; ten-fold slack";
  EXPECT_TRUE(job.leaves_nothing());
  EXPECT_THAT(job.errors(), HasSubstr("rank 2 failed first: killed by SIGKILL (signal 9)"));
  EXPECT_THAT(job.errors(), HasSubstr("rank 0: killed by SIGTERM (signal 15), asked by the launcher"));
}

TEST(Faults, TheExitCodeIsTheFirstFailedRanks) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2"},
                     {"rank", "0", "catch", number(SIGTERM), "5", "touch", folder / "armed", "pause", "rank",
                      "1", "await", folder / "armed", "exit", "3"}));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.errors(), HasSubstr("rank 1 failed first: exit code 3"));
  EXPECT_THAT(job.errors(), HasSubstr("rank 0: exit code 5, asked by the launcher"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Faults, RanksThatIgnoreSigtermAreKilledAfterTheGracePeriod) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "3", "--grace", "0.2"},
                     {"rank", "0", "ignore-term", "touch",          folder / "deaf0", "pause",
                      "rank", "1", "ignore-term", "touch",          folder / "deaf1", "pause",
                      "rank", "2", "await",       folder / "deaf0", "await",          folder / "deaf1",
                      "exit", "7"}));
  EXPECT_EQ(job.wait(), 7);
  EXPECT_TRUE(job.leaves_nothing());
  EXPECT_THAT(job.errors(), HasSubstr("rank 0: killed by SIGKILL (signal 9), asked by the launcher"));
}

TEST(Faults, StoppedRanksAreEndedToo) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2", "--grace", "0.2"},
                     {"rank", "0", "touch", folder / "ready", "die", number(SIGSTOP), "pause", "rank", "1",
                      "await", folder / "ready", "exit", "4"}));
  EXPECT_EQ(job.wait(), 4);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Faults, AStoppedRankIsContinuedSoThatItCanEndByItself) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2", "--grace", "3600"},
                     {"rank", "0", "catch", number(SIGTERM), "5", "touch", folder / "ready", "pause", "rank",
                      "1", "await", folder / "go", "exit", "4"}));
  ASSERT_TRUE(eventually([&] { return exists(folder / "ready"); }));
  const pid_t rank = child_of(child_of(job.pid()));
  kill(rank, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return is_stopped(rank); }));
  write_file(folder / "go", "");
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.errors(), HasSubstr("rank 0: exit code 5, asked by the launcher"));
}

TEST(Faults, ARankIsEndedWhateverItsName) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2", "--grace", "0.2"},
                     {"name", "a) b", "daemon", folder / "daemon", "rank", "1", "await", folder / "daemon0",
                      "exit", "3", "all", "pause"}));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.errors(), HasSubstr("rank 0: killed by SIGTERM (signal 15), asked by the launcher"));
  EXPECT_TRUE(job.family().empty()) << "the ranks and the daemons of that name";
}

TEST(Faults, RanksDieWithFrontAndKeeperKilledTogether) {
  TemporaryFolder folder;
  // They would live for two minutes, twice as long as is waited for their end.
  Child job(
      launched({"--nproc-per-node", "2"}, {"ignore-term", "touch-mine", folder / "ready", "pause", "pause"}));
  ASSERT_TRUE(eventually([&] { return exists(folder / "ready0") && exists(folder / "ready1"); }));
  const pid_t keeper = child_of(job.pid());
  for (const pid_t pid : {keeper, job.pid()}) {  // so that neither can act on the end of the other
    kill(pid, SIGSTOP);
    ASSERT_TRUE(eventually([&] { return is_stopped(pid); }));
  }
  kill(keeper, SIGKILL);
  job.send(SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Faults, AKilledLauncherLeavesNoProcess) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2"},
                     {"ignore-term", "daemon", folder / "daemon", "touch-mine", folder / "ready", "pause"}));
  ASSERT_TRUE(eventually([&] { return exists(folder / "ready0") && exists(folder / "ready1"); }));
  EXPECT_GE(job.family().size(), 6U) << "front, keeper, two ranks and their daemons";
  job.send(SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Faults, AKilledKeeperLeavesNoProcess) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2"},
                     {"ignore-term", "daemon", folder / "daemon", "touch-mine", folder / "ready", "pause"}));
  ASSERT_TRUE(eventually([&] { return exists(folder / "ready0") && exists(folder / "ready1"); }));
  const pid_t keeper = child_of(job.pid());
  ASSERT_NE(keeper, 0);
  kill(keeper, SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.leaves_nothing());
  EXPECT_THAT(job.errors(),
              HasSubstr("the keeper process (pid " + number(keeper) + ") was killed by SIGKILL"));
}

TEST(Faults, KillingAllProcessesOfTheLaunchersNameLeavesNoProcess) {
  const auto name_of = [](pid_t pid) { return read_file("/proc/" + number(pid) + "/comm"); };
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2"},
                     {"ignore-term", "daemon", folder / "daemon", "touch-mine", folder / "ready", "pause"}));
  ASSERT_TRUE(eventually([&] { return exists(folder / "ready0") && exists(folder / "ready1"); }));
  const std::string name = name_of(job.pid()).substr(0, name_of(job.pid()).find('\n'));
  ASSERT_EQ(name, "lockstep");
  for (const pid_t pid : job.family()) {  // as pkill -KILL lockstep does it
    if (name_of(pid).find(name) != std::string::npos) kill(pid, SIGKILL);
  }
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Faults, DaemonsOfAFailedJobAreEnded) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2", "--grace", "0.2"},
                     {"daemon", folder / "daemon", "rank", "1", "exit", "3", "all", "pause"}));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_TRUE(exists(folder / "daemon1"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Faults, DaemonsOfASuccessfulJobAreEnded) {
  TemporaryFolder folder;
  Child job(
      launched({"--nproc-per-node", "2", "--grace", "0.2"}, {"daemon", folder / "daemon", "print", "done"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_TRUE(exists(folder / "daemon0") && exists(folder / "daemon1"));
  EXPECT_TRUE(job.leaves_nothing());
  EXPECT_EQ(job.errors(), "");
}

TEST(Faults, ALauncherWhoseOutputNobodyReadsStillEndsTheJob) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  TemporaryFolder folder;
  {
    Child job(launched({"--nproc-per-node", "2", "--grace", "0.2"},
                       {"rank", "0", "count", "500", "1000", "touch", folder / "ready", "pause", "rank", "1",
                        "await", folder / "ready", "exit", "6"}),
              {.stdout_fd = pipe_ends[1]});
    close(pipe_ends[1]);
    // The ranks are gone though the launcher still holds output for its reader.
    EXPECT_TRUE(eventually([&] { return job.family().size() <= 2 && exists(folder / "ready"); }));
    close(pipe_ends[0]);
    EXPECT_EQ(job.wait(), 6);
    EXPECT_TRUE(job.leaves_nothing());
  }
}

/// A standard output that somebody holds open and never reads.
struct UnreadPipe {
  UnreadPipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  }
  ~UnreadPipe() {
    for (const int end : ends) close(end);
  }
  int ends[2];
};

TEST(Faults, TheReportIsShownThoughNobodyReadsStandardOutput) {
  const UnreadPipe unread;
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2", "--grace", "0.2"},
                     {"rank", "0", "count", "500", "1000", "touch", folder / "ready", "pause", "rank", "1",
                      "await", folder / "ready", "exit", "6"}),
            {.stdout_fd = unread.ends[1]});
  EXPECT_EQ(job.wait(), 6) << "what is not read within the grace period is dropped";
  EXPECT_THAT(job.errors(), HasSubstr("rank 1 failed first: exit code 6"));
  EXPECT_THAT(job.errors(), HasSubstr("nobody reads standard output"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Faults, AReaderThatIsLateGetsAllLines) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  Child job(launched({"--grace", "0"}, {"count", "500", "1000"}), {.stdout_fd = pipe_ends[1]});
  close(pipe_ends[1]);
  ASSERT_TRUE(eventually([&] {
    return read_file(job.folder() / "logs/rank_0/stdout.log").size() > 500'000 && job.family().size() == 2;
  })) << "the rank has ended, and most of its lines are still with the launcher";
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // longer than a failed job would wait
  std::string shown;
  char bytes[4096];
  for (ssize_t count = 0; (count = read(pipe_ends[0], bytes, sizeof bytes)) > 0;) {
    shown.append(bytes, static_cast<size_t>(count));
  }
  close(pipe_ends[0]);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(count_lines_with(shown, "[0:0] rank 0 line "), 500);
}

TEST(Faults, AKilledLauncherIsTheCauseNotTheRanksThatFellWithIt) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2"}, {"touch-mine", folder / "ready", "pause"}));
  ASSERT_TRUE(eventually([&] { return exists(folder / "ready0") && exists(folder / "ready1"); }));
  job.send(SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.leaves_nothing());
  EXPECT_THAT(job.errors(), HasSubstr("the launcher (pid " + number(job.pid()) + ") was killed"));
  EXPECT_THAT(job.errors(), Not(HasSubstr("failed first")));
}

TEST(Faults, TheReportShowsTheLastTwentyLinesAndTheLogs) {
  std::vector<std::string> words = {"rank", "1"};
  for (int i = 1; i <= 25; ++i) words.insert(words.end(), {"complain", "trouble " + number(i) + "."});
  words.insert(words.end(), {"write-error-file", "tensor of shape [3]", "exit", "9"});
  Child job(launched({"--nproc-per-node", "2", "--tee", "0"}, words));
  EXPECT_EQ(job.wait(), 9);
  EXPECT_THAT(job.errors(), HasSubstr("    | trouble 6.\n"));
  EXPECT_THAT(job.errors(), HasSubstr("    | trouble 25.\n"));
  EXPECT_THAT(job.errors(), Not(HasSubstr("trouble 5.")));
  EXPECT_THAT(job.errors(), HasSubstr("logs/rank_1/stderr.log"));
  EXPECT_THAT(job.errors(), HasSubstr("    | tensor of shape [3]"));
  EXPECT_THAT(job.errors(), HasSubstr("rank      1 (node 0, local rank 1)"));
}

TEST(Restarts, TheGroupStartsAgainAndTheReportTellsEachAttempt) {
  Child job(
      launched({"--nproc-per-node", "2", "--max-restarts", "3"},
               {"env", "TORCHELASTIC_RESTART_COUNT", "attempt", "0", "rank", "1", "exit", "3", "attempt", "1",
                "rank", "0", "die", number(SIGABRT), "attempt", "0", "rank", "0", "pause"}));
  EXPECT_EQ(job.wait(), 0);
  // Only the rank that ends an attempt has surely said something in it.
  const std::string log_of_0 = read_file(job.folder() / "logs/rank_0/stdout.log");
  const std::string log_of_1 = read_file(job.folder() / "logs/rank_1/stdout.log");
  EXPECT_THAT(log_of_1, HasSubstr("RESTART_COUNT=0\n--- lockstep: restart 1 of 3, "));
  EXPECT_THAT(log_of_0, HasSubstr("RESTART_COUNT=1\n--- lockstep: restart 2 of 3, "));
  EXPECT_THAT(log_of_0, HasSubstr("RESTART_COUNT=2\n"));
  EXPECT_THAT(job.errors(), HasSubstr("attempt 1: rank 1 (pid "));
  EXPECT_THAT(job.errors(), HasSubstr("attempt 2: rank 0 (pid "));
  EXPECT_THAT(job.errors(), HasSubstr("all ranks ended well after 2 restarts"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Restarts, EndWithTheLastAttemptsCode) {
  Child job(launched({"--nproc-per-node", "2", "--max-restarts", "1"},
                     {"attempt", "0", "rank", "1", "exit", "3", "attempt", "1", "rank", "0", "exit", "4"}));
  EXPECT_EQ(job.wait(), 4);
  EXPECT_EQ(count_lines_with(job.errors(), "failed first"), 2);
  EXPECT_THAT(job.errors(), HasSubstr("attempt   2 of 2"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Restarts, ARefusalIsNotTriedAgain) {
  Child job(launched({"--nproc-per-node", "2", "--max-restarts", "1000"},
                     {"rank", "1", "exit", "2", "rank", "0", "pause"}));
  EXPECT_EQ(job.wait(), 2);
  EXPECT_EQ(count_lines_with(job.errors(), "failed first"), 1);
  EXPECT_THAT(job.errors(), HasSubstr("not restarted: exit code 2 is a refusal"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Restarts, AnErrorFileOfAnEarlierAttemptIsNotShown) {
  Child job(launched({"--max-restarts", "1"}, {"attempt", "0", "write-error-file", "the first trouble",
                                               "exit", "3", "all", "attempt", "1", "die", number(SIGKILL)}));
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_EQ(count_lines_with(job.errors(), "| the first trouble"), 1) << job.errors();
}

TEST(Restarts, TheMarkerHasALineOfItsOwn) {
  Child job(
      launched({"--max-restarts", "1"}, {"attempt", "0", "print-raw", "no newline at end", "exit", "3"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(read_file(job.folder() / "logs/rank_0/stdout.log"),
              HasSubstr("no newline at end\n--- lockstep: restart 1 of 1"));
  EXPECT_THAT(read_file(job.folder() / "logs/rank_0/stderr.log"), testing::StartsWith("--- lockstep"));
}

TEST(Restarts, AProgramThatIsGoneIsAFailedAttempt) {
  TemporaryFolder folder;
  std::ofstream(folder / "program") << "#!/bin/sh\nrm \"$0\"\nexit 3\n";
  std::filesystem::permissions(folder / "program", std::filesystem::perms::all);
  Child job({LOCKSTEP_COMMAND, "run", "--max-restarts", "2", "--", (folder / "program").string()});
  EXPECT_EQ(job.wait(), 127);
  EXPECT_THAT(job.errors(), HasSubstr("attempt 1: rank 0 (pid "));
  EXPECT_THAT(job.errors(), HasSubstr("attempt 3: cannot execute"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Restarts, TheListOfAttemptsIsPrintedOnce) {
  Child job(launched({"--max-restarts", "3"}, {"exit", "3"}));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_EQ(count_lines_with(job.errors(), "all attempts:"), 1) << job.errors();
  EXPECT_EQ(count_lines_with(job.errors(), "attempt 1: rank 0"), 1);
  EXPECT_EQ(count_lines_with(job.errors(), "attempt 4: rank 0"), 1);
}

class Forwarding : public testing::TestWithParam<int> {};

TEST_P(Forwarding, ASignalReachesEveryRank) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2"},
                     {"catch", number(GetParam()), "0", "touch-mine", folder / "ready", "pause"}));
  ASSERT_TRUE(eventually([&] { return exists(folder / "ready0") && exists(folder / "ready1"); }));
  job.send(GetParam());
  EXPECT_EQ(job.wait(), 0);
  const std::string caught = std::string("caught SIG") + sigabbrev_np(GetParam());
  EXPECT_EQ(count_lines_with(job.output(), caught), 2) << job.output();
  EXPECT_TRUE(job.leaves_nothing());
}

INSTANTIATE_TEST_SUITE_P(Signals, Forwarding, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2),
                         [](const auto& test) { return std::string(sigabbrev_np(test.param)); });

TEST(Signals, ASecondInterruptKillsAtOnce) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2", "--grace", "3600"},
                     {"catch", number(SIGINT), "-1", "touch-mine", folder / "ready", "pause"}));
  ASSERT_TRUE(eventually([&] { return exists(folder / "ready0") && exists(folder / "ready1"); }));
  job.send(SIGINT);
  ASSERT_TRUE(eventually([&] { return count_lines_with(job.output(), "caught SIGINT") == 2; }));
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Signals, AStopSignalEndsRanksThatIgnoreItAfterTheGracePeriod) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2", "--grace", "0.2", "--max-restarts", "5"},
                     {"ignore-term", "touch-mine", folder / "ready", "pause"}));
  ASSERT_TRUE(eventually([&] { return exists(folder / "ready0") && exists(folder / "ready1"); }));
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_THAT(job.errors(), HasSubstr("stopped by SIGTERM"));
  EXPECT_TRUE(job.leaves_nothing());
}

class StopInTheGracePeriod : public testing::TestWithParam<int> {};

TEST_P(StopInTheGracePeriod, EndsTheJobWithoutARestart) {
  TemporaryFolder folder;
  Child job(
      launched({"--nproc-per-node", "2", "--grace", "3600", "--max-restarts", "2"},
               {"rank", "0",     "catch",          number(SIGTERM),  "-1",          "catch", number(SIGINT),
                "-1",   "touch", folder / "ready", "await",          folder / "go", "exit",  "0",
                "rank", "1",     "await",          folder / "ready", "exit",        "3"}));
  ASSERT_TRUE(eventually([&] { return count_lines_with(job.output(), "caught SIGTERM") == 1; }))
      << "rank 1 has failed, and rank 0 is in its grace period";
  job.send(GetParam());
  const std::string caught = std::string("caught SIG") + sigabbrev_np(GetParam());
  const int times = GetParam() == SIGTERM ? 2 : 1;
  ASSERT_TRUE(eventually([&] { return count_lines_with(job.output(), caught) == times; }));
  std::ofstream(folder / "go") << "";
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.errors(), HasSubstr("rank 1 failed first: exit code 3"));
  EXPECT_THAT(job.errors(), HasSubstr(std::string("stopped by SIG") + sigabbrev_np(GetParam())));
  EXPECT_THAT(job.errors(), Not(HasSubstr("restarting")));
  EXPECT_TRUE(job.leaves_nothing());
}

INSTANTIATE_TEST_SUITE_P(Signals, StopInTheGracePeriod, testing::Values(SIGINT, SIGTERM),
                         [](const auto& test) { return std::string(sigabbrev_np(test.param)); });

TEST(Signals, TwoInterruptsInTheGracePeriodEndTheJobWithoutARestart) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "2", "--grace", "3600", "--max-restarts", "2"},
                     {"rank", "0", "catch", number(SIGTERM), "-1", "catch", number(SIGINT), "-1", "touch",
                      folder / "ready", "pause", "rank", "1", "await", folder / "ready", "exit", "3"}));
  ASSERT_TRUE(eventually([&] { return count_lines_with(job.output(), "caught SIGTERM") == 1; }));
  job.send(SIGINT);
  ASSERT_TRUE(eventually([&] { return count_lines_with(job.output(), "caught SIGINT") == 1; }));
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.errors(), Not(HasSubstr("restarting")));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Signals, WhatWasIgnoredAtTheStartStaysIgnoredEvenIfALibraryTakesItForItself) {
  for (const char* library : {"", LOCKSTEP_TAKES_SIGHUP}) {
    TemporaryFolder folder;
    Child job(launched({}, {"touch", folder / "ready", "await", folder / "go", "print", "went on"}),
              {.environment = {{"LD_PRELOAD", library}}, .before = [] { signal(SIGHUP, SIG_IGN); }});
    ASSERT_TRUE(eventually([&] { return exists(folder / "ready"); }));
    for (const pid_t pid : job.family()) kill(pid, SIGHUP);
    std::ofstream(folder / "go") << "";
    EXPECT_EQ(job.wait(), 0);
    EXPECT_EQ(job.errors(), "") << "nothing is said of a stop";
    EXPECT_THAT(job.output(), HasSubstr("went on"));
  }
}

TEST(Signals, AParentThatIgnoresDeathsOfChildrenDoesNotHideThem) {
  Child job(launched({}, {"exit", "3"}), {.before = [] { signal(SIGCHLD, SIG_IGN); }});
  EXPECT_EQ(job.wait(), 3);
}

TEST(Signals, AStopSignalEndsALauncherWhoseOutputNobodyReads) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const UnreadPipe unread;
    TemporaryFolder folder;
    Child job(launched({"--nproc-per-node", "2", "--grace", "3600"},
                       {"rank", "0", "count", "500", "1000", "touch", folder / "ready", "pause", "rank", "1",
                        "await", folder / "ready", "exit", "6"}),
              {.stdout_fd = unread.ends[1]});
    ASSERT_TRUE(eventually([&] { return exists(folder / "ready") && job.family().size() == 2; }))
        << "the ranks have ended; the launcher waits for its reader";
    job.send(signal);
    EXPECT_EQ(job.wait(), 6);
    EXPECT_THAT(job.errors(), HasSubstr("rank 1 failed first: exit code 6"));
    EXPECT_TRUE(job.leaves_nothing());
  }
}

TEST(Descriptors, OutputThatIsClosedIsTakenForNowhere) {
  Child job(launched({}, {"print", "result"}), {.before = [] { close(STDOUT_FILENO); }});
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_EQ(job.errors(), "");
  EXPECT_EQ(read_file(job.folder() / "logs/rank_0/stdout.log"), "result\n");
}

TEST(Descriptors, AFailureIsNoAbortWhereStandardErrorIsClosed) {
  Child job(launched({}, {"exit", "3"}), {.before = [] { close(STDERR_FILENO); }});
  EXPECT_EQ(job.wait(), 3);
}

/// Opens /dev/full as `fd` of a child.
Child::Options full(int fd) {
  return {.before = [fd] { dup2(open("/dev/full", O_WRONLY), fd); }};
}

TEST(Descriptors, OutputThatCannotBeWrittenIsAFailureAndTheLogsHaveIt) {
  Child job(launched({"--nproc-per-node", "2"}, {"print", "result"}), full(STDOUT_FILENO));
  EXPECT_EQ(job.wait(), 1);
  EXPECT_EQ(job.errors(),
            "lockstep run: standard output: No space left on device; hint: the logs have all of it\n");
  EXPECT_EQ(read_file(job.folder() / "logs/rank_1/stdout.log"), "result\n");
  Child failed(launched({}, {"print", "result", "exit", "3"}), full(STDOUT_FILENO));
  EXPECT_EQ(failed.wait(), 3) << "a rank's failure comes first";
  EXPECT_THAT(failed.errors(), HasSubstr("standard output: No space left on device"));
  Child mute(launched({}, {"complain", "result"}), full(STDERR_FILENO));
  EXPECT_EQ(mute.wait(), 1);
}

TEST(Descriptors, InputThatIsClosedIsEmpty) {
  Child job(launched({}, {"read"}), {.before = [] { close(STDIN_FILENO); }});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.output(), "[0:0] read 0 \n");
}

void limit_descriptors(rlim_t soft, rlim_t hard) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(Descriptors, TheLauncherTakesWhatItNeedsAndTheRanksKeepTheUsersLimit) {
  Child job({LOCKSTEP_COMMAND, "run", "--nproc-per-node", "20", "--", "sh", "-c", "ulimit -Sn"},
            {.before = [] { limit_descriptors(64, 512); }});
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_EQ(count_lines_with(job.output(), "] 64"), 20) << job.output();
}

TEST(Descriptors, TooFewForTheRanksAreRefusedBeforeAnythingStarts) {
  Child job(launched({"--nproc-per-node", "20"}, {"print", "started"}),
            {.before = [] { limit_descriptors(64, 64); }});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.errors(), HasSubstr("20 ranks on this node need "));
  EXPECT_THAT(job.errors(), HasSubstr("the limit is 64; hint: ulimit -n "));
  EXPECT_FALSE(exists(job.folder() / "logs"));
}

TEST(Signals, SuspendingTheLauncherSuspendsTheRanks) {
  TemporaryFolder folder;
  Child job(launched({"--nproc-per-node", "1"},
                     {"touch", folder / "ready", "await", folder / "go", "print", "went on"}));
  ASSERT_TRUE(eventually([&] { return exists(folder / "ready"); }));
  const auto in_state = [&](char state) {
    int count = 0;
    for (const pid_t pid : job.family()) {
      const std::string line = line_with(read_file("/proc/" + number(pid) + "/status"), "State:");
      count += line.size() > 7 && line[7] == state ? 1 : 0;
    }
    return count;
  };
  job.send(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return in_state('T') == 2; })) << "the front and the rank";
  job.send(SIGCONT);
  EXPECT_TRUE(eventually([&] { return in_state('T') == 0; }));
  Child go({"touch", (folder / "go").string()});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.output(), HasSubstr("went on"));
}

}  // namespace
}  // namespace lockstep::test
