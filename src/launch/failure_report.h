#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::launch {

/// How one rank ended.
struct RankEnd {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = -1;
  int wait_status = 0;     ///< As waitpid gives it.
  int64_t noticed_ns = 0;  ///< On the monotonic clock; ends are kept in the order in which they were reaped.
  bool asked_to = false;   ///< After the launcher had sent it a signal.
  std::vector<std::string> last_lines;  ///< Of its standard error.
  std::filesystem::path log_dir;  ///< Holds stdout.log, stderr.log and, if the program wrote one, error.json.
};

/// One start of all ranks.
struct Attempt {
  int64_t started_ns = 0;
  std::vector<RankEnd> ends;  ///< First end first.
  std::string not_started;    ///< Why not all ranks could be started; "" if they were.
};

/// The exit code a shell would give: the rank's own, or 128 + signal.
int exit_code(int wait_status);

/// "exit code 3" or "killed by SIGSEGV (signal 11)".
std::string describe_end(int wait_status);

/// The first end that was a failure: the root cause. Null if all ended well.
const RankEnd* first_failure(const Attempt& attempt);

/// Tells what failed first and what fell after it. `number` of `of` attempts, counted from 1.
std::string failure_report(const Attempt& attempt, int number, int of, int node_rank,
                           const std::string& host);

/// One line for the list of attempts: "attempt 1: rank 0 (pid 12) exit code 3 after 1.20 s".
std::string attempt_line(const Attempt& attempt, int number);

}  // namespace lockstep::launch
