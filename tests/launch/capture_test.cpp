#include "launch/capture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kLong(60);

Captured shell(const std::string& script, std::chrono::milliseconds limit = kLong) {
  return capture({"/bin/sh", "-c", script}, {{"PATH", "/usr/bin:/bin"}, {"GIVEN", "yes"}}, limit);
}

TEST(Capture, KeepsOutputErrorsAndExitCodeApart) {
  const Captured run = shell("echo out; echo err >&2; exit 7");
  EXPECT_TRUE(run.started);
  EXPECT_FALSE(run.ok());
  EXPECT_EQ(run.output, "out\n");
  EXPECT_EQ(run.errors, "err\n");
  EXPECT_EQ(run.exit_code, 7);
  EXPECT_EQ(run.signal, 0);
}

TEST(Capture, GivesExactlyTheEnvironment) {
  setenv("LOCKSTEP_TEST_NOT_GIVEN", "1", 1);
  const Captured run = shell("echo $GIVEN${LOCKSTEP_TEST_NOT_GIVEN-unset}");
  EXPECT_EQ(run.output, "yesunset\n");
}

TEST(Capture, TakesMoreThanAPipeHolds) {
  const Captured run = shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2");
  EXPECT_TRUE(run.ok());
  EXPECT_EQ(run.output.size(), 300000U);
  EXPECT_EQ(run.errors.size(), 300000U);
}

TEST(Capture, TellsSignals) {
  const Captured run = shell("kill -ILL $$");
  EXPECT_EQ(run.signal, SIGILL);
  EXPECT_EQ(run.exit_code, 128 + SIGILL);
}

TEST(Capture, KillsTheWholeGroupAtTheLimit) {
  const Captured run = shell("sleep 1000 & echo $!; wait", std::chrono::milliseconds(300));
  EXPECT_TRUE(run.timed_out);
  EXPECT_EQ(run.signal, SIGKILL);
  // The number alone says nothing (it may be in use again); a command line that is our sleep would. On a busy
  // machine a killed process takes a while to be gone.
  const std::string number = run.output.substr(0, run.output.find('\n'));
  const Captured gone = shell("for i in $(seq 50); do [ \"$(tr '\\0' ' ' 2>/dev/null </proc/" + number +
                              "/cmdline)\" = 'sleep 1000 ' ] || exit 0; sleep 0.1; done; exit 1");
  EXPECT_TRUE(gone.ok());
}

TEST(Capture, DoesNotWaitForWhatTheProgramLeftBehind) {
  const auto start = std::chrono::steady_clock::now();
  const Captured run = shell("sleep 1000 & echo started");
  EXPECT_TRUE(run.ok());
  EXPECT_EQ(run.output, "started\n");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Capture, WaitsForAProgramThatClosedItsOutput) {
  const Captured run = shell("exec >&- 2>&-; head -c 1000000 /dev/zero | cksum | grep -q . && exit 3");
  EXPECT_EQ(run.exit_code, 3);
}

TEST(Capture, ASignalThatEndsThisProcessEndsTheProgramFirst) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    shell(fmt::format("echo >&{}; trap '' TERM; while :; do sleep 1000; done", ends[1]));
    _exit(0);
  }
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_EQ(kill(pid, SIGINT), 0);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "who else has the pipe has ended";
  close(ends[0]);
}

TEST(Capture, LeavesNoDescriptorOpen) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  shell("echo out");
  shell("sleep 1000", std::chrono::milliseconds(1));
  capture({"/nonexistent"}, {}, kLong);
  EXPECT_EQ(open_files(), before);
}

TEST(Capture, SaysWhyAProgramCannotStart) {
  const Captured run = capture({"/nonexistent"}, {}, kLong);
  EXPECT_FALSE(run.started);
  EXPECT_FALSE(run.ok());
  EXPECT_EQ(run.errors, "No such file or directory");
}

}  // namespace
}  // namespace lockstep::launch
