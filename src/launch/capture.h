#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launch/environment.h"

namespace lockstep::launch {

/// How a short-lived program ended and what it wrote.
struct Captured {
  bool started = false;    ///< False: it could not be executed; `errors` says why.
  bool timed_out = false;  ///< It was killed at the time limit.
  int exit_code = 0;       ///< 128 + signal when a signal ended it.
  int signal = 0;          ///< The signal that ended it, or 0.
  std::string output;
  std::string errors;

  bool ok() const { return started && !timed_out && exit_code == 0; }
};

/// Runs a program (a path, or a name looked up on this process's PATH) in exactly the given environment, with
/// no input, and waits for its end or kills it and its process group at the limit. A signal that ends this
/// process (SIGINT, SIGTERM, SIGHUP) ends the program first. Safe with threads about; does not throw for a
/// program that fails. `stopped` is asked once those signals wait: true, and nothing is started. `watch` is
/// called with the output so far whenever there is more.
Captured capture(const std::vector<std::string>& command, const Environment& environment,
                 std::chrono::milliseconds limit, bool (*stopped)() = nullptr,
                 const std::function<void(const std::string& output)>& watch = {});

}  // namespace lockstep::launch
