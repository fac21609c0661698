#include "launch/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.h"

namespace lockstep::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// What waitpid gives.
constexpr int exited(int code) {
  return code << 8;
}
constexpr int killed(int signal) {
  return signal;
}

RankEnd end_of(int rank, int status, int64_t milliseconds, bool asked) {
  return {.rank = rank,
          .local_rank = rank,
          .pid = 100 + rank,
          .wait_status = status,
          .noticed_ns = milliseconds * 1'000'000,
          .asked_to = asked,
          .last_lines = {},
          .log_dir = "logs/rank_" + std::to_string(rank)};
}

TEST(FailureReport, NamesTheFirstFailureFirstAndThenTheOthersInOrder) {
  const Attempt attempt{.started_ns = 0,
                        .ends = {end_of(3, exited(0), 10, false), end_of(2, killed(11), 20, false),
                                 end_of(0, exited(1), 25, false), end_of(1, killed(15), 30, true)}};
  EXPECT_EQ(first_failure(attempt)->rank, 2);
  const std::string report = failure_report(attempt, 1, 1, 4, "tux");
  EXPECT_TRUE(report.starts_with("lockstep run: rank 2 failed first: killed by SIGSEGV (signal 11)\n"))
      << report;
  EXPECT_THAT(
      report,
      AllOf(HasSubstr("rank      2 (node 4, local rank 2)"), HasSubstr("host      tux"),
            HasSubstr("pid       102"), HasSubstr("ended     20.0 ms after the start"),
            HasSubstr("  rank 0: exit code 1, 5.0 ms later\n"
                      "  rank 1: killed by SIGTERM (signal 15), asked by the launcher, 10.0 ms later\n")));
  EXPECT_THAT(report, Not(HasSubstr("rank 3"))) << "it had ended well";
  EXPECT_THAT(report, Not(HasSubstr("attempt")));
}

TEST(FailureReport, QuotesTheLastWordsOfThoseThatFellAfter) {
  Attempt attempt{.started_ns = 0,
                  .ends = {end_of(0, exited(1), 20, false), end_of(1, killed(15), 30, true)}};
  attempt.ends[1].last_lines = {"Traceback", "RuntimeError: the true cause"};
  EXPECT_THAT(failure_report(attempt, 1, 1, 0, "tux"),
              AllOf(HasSubstr("asked by the launcher, 10.0 ms later\n    | RuntimeError: the true cause\n"),
                    Not(HasSubstr("Traceback"))));
}

TEST(FailureReport, CountsTheLastLinesOfTheFirstFailure) {
  Attempt attempt{.started_ns = 0, .ends = {end_of(0, exited(1), 20, false)}};
  attempt.ends[0].last_lines = {"oops"};
  EXPECT_THAT(failure_report(attempt, 1, 1, 0, "tux"),
              HasSubstr("  the last line of its standard error:\n    | oops\n"));
  attempt.ends[0].last_lines.emplace_back("again");
  EXPECT_THAT(failure_report(attempt, 1, 1, 0, "tux"), HasSubstr("  last 2 lines of its standard error:\n"));
}

TEST(FailureReport, CountsAttempts) {
  const Attempt attempt{.started_ns = 0, .ends = {end_of(0, exited(9), 1500, false)}};
  EXPECT_THAT(failure_report(attempt, 2, 4, 0, "tux"), HasSubstr("attempt   2 of 4"));
  EXPECT_EQ(attempt_line(attempt, 2), "  attempt 2: rank 0 (pid 100) exit code 9, 1.50 s after the start\n");
}

TEST(FailureReport, TellsWhyAnAttemptCouldNotStartNotWhomTheLauncherThenEnded) {
  const Attempt attempt{
      .started_ns = 0, .ends = {end_of(0, killed(9), 1, true)}, .not_started = "cannot execute ./p"};
  EXPECT_EQ(failure_report(attempt, 2, 4, 0, "tux"),
            "lockstep run: attempt 2 of 4 could not start: cannot execute ./p\n");
  EXPECT_EQ(attempt_line(attempt, 2), "  attempt 2: cannot execute ./p\n");
}

TEST(FailureReport, ShowsTheErrorFileInBothOfTorchsForms) {
  const test::TemporaryFolder folder;
  Attempt attempt{.started_ns = 0, .ends = {end_of(0, exited(1), 1, false)}};
  attempt.ends[0].log_dir = folder.path();
  std::ofstream(folder / "error.json") << R"({"message": "first\nsecond"})";
  EXPECT_THAT(failure_report(attempt, 1, 1, 0, "tux"), HasSubstr("    | first\n    | second\n"));
  std::ofstream(folder / "error.json") << R"({"message": {"message": "nested", "extraInfo": {}}})";
  EXPECT_THAT(failure_report(attempt, 1, 1, 0, "tux"), HasSubstr("    | nested\n"));
  std::ofstream(folder / "error.json") << "{\"mess";
  EXPECT_THAT(failure_report(attempt, 1, 1, 0, "tux"), Not(HasSubstr("it wrote")));
}

TEST(ExitCode, IsTheRanksOwnOr128PlusSignal) {
  EXPECT_EQ(exit_code(exited(3)), 3);
  EXPECT_EQ(exit_code(killed(9)), 137);
  EXPECT_EQ(first_failure({.started_ns = 0, .ends = {end_of(0, exited(0), 1, false)}}), nullptr);
}

}  // namespace
}  // namespace lockstep::launch
