#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launch/capture.h"

namespace lockstep::cli {

/// While one lives, the first Ctrl-C (SIGINT), SIGTERM or SIGHUP is only noted, so that work can end at a
/// good place; the same one again ends the process. What the parent had ignored stays ignored. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Whether such a signal came since the guard was made.
  static bool interrupted();
  /// What a process that ends by the first of them exits with: 128 + signal.
  static int exit_code();
};

/// Thrown by work that ends where such a signal found it.
struct Interrupted {};

/// Throws Interrupted if one came.
inline void stop_if_interrupted() {
  if (InterruptGuard::interrupted()) throw Interrupted{};
}

/// launch::capture that throws Interrupted if one came before it or meanwhile.
launch::Captured capture_until_interrupted(const std::vector<std::string>& command,
                                           const launch::Environment& environment,
                                           std::chrono::milliseconds limit);

/// A verb's work under a guard: its exit code, or InterruptGuard's if it threw Interrupted, with nothing left
/// behind.
template <typename Work>
int until_interrupted(const Work& work) {
  const InterruptGuard guard;
  try {
    return work();
  } catch (const Interrupted&) {
    return InterruptGuard::exit_code();
  }
}

}  // namespace lockstep::cli
