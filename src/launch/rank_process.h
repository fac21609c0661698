#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/environment.h"
#include "launch/unique_fd.h"

namespace lockstep::launch {

/// What to start for one rank.
struct RankCommand {
  std::vector<std::string> words;  ///< words[0] is the path of an executable file.
  Environment environment;
  std::vector<int> cpus;              ///< CPUs to bind to; empty: do not bind.
  int stdin_fd = -1;                  ///< Becomes standard input.
  std::optional<rlimit> descriptors;  ///< RLIMIT_NOFILE of the rank; this process's own if absent.
};

/// A started rank, with the ends that the launcher reads.
struct RankProcess {
  pid_t pid = -1;
  UniqueFd pidfd;
  UniqueFd stdout_pipe;  ///< Non-blocking.
  UniqueFd stderr_pipe;  ///< Non-blocking.
};

/// Makes room for the descriptors of so many ranks: raises the soft RLIMIT_NOFILE where it is too low, and
/// returns what it was, for the ranks. Throws UsageError where the hard limit is too low.
rlimit reserve_descriptors(size_t ranks);

/// Starts a rank in a process group of its own, with no signal blocked; it dies with this thread. Returns
/// once the program is running; throws UsageError if it cannot be executed.
RankProcess start_rank(const RankCommand& command);

}  // namespace lockstep::launch
