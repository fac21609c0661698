#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launch/capture.h"

namespace lockstep::cli {

constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells report it

/// While one lives, the first Ctrl-C (SIGINT) is only noted, so that work can end at a good place; the second
/// one ends the process. A SIGINT that the parent had ignored stays ignored. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Whether Ctrl-C was pressed since the guard was made.
  static bool interrupted();
};

/// Thrown by work that ends where Ctrl-C found it.
struct Interrupted {};

/// Throws Interrupted if Ctrl-C was pressed.
inline void stop_if_interrupted() {
  if (InterruptGuard::interrupted()) throw Interrupted{};
}

/// launch::capture that throws Interrupted if Ctrl-C was pressed before it or meanwhile.
launch::Captured capture_until_interrupted(const std::vector<std::string>& command,
                                           const launch::Environment& environment,
                                           std::chrono::milliseconds limit);

/// A verb's work under a guard: its exit code, or kExitInterrupted if it threw Interrupted, with nothing left
/// behind.
template <typename Work>
int until_interrupted(const Work& work) {
  const InterruptGuard guard;
  try {
    return work();
  } catch (const Interrupted&) {
    return kExitInterrupted;
  }
}

}  // namespace lockstep::cli
