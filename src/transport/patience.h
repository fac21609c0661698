#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "transport/futex.h"

namespace lockstep::transport {

/// A caller's timeout, so that it can be added to a time: one of more than a century counts as a century.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) {
  return std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365 * 100));
}

/// When a wait must be over, and who may end it early.
struct Limit {
  std::chrono::nanoseconds timeout{};
  const std::atomic<bool>* failed = nullptr;  ///< The job has failed: nobody will come any more.
  bool in_background = false;                 ///< There is better use for this core: sleep soon.
};

/// How a rank waits: it spins briefly, gives way, then sleeps. With more ranks than cores it soon gives way:
/// the one it waits for may need this very core. One object per wait; the clock is not read before it sleeps.
class Patience {
 public:
  explicit Patience(const Limit& limit, bool crowded)
      : limit_(limit),
        spins_(crowded || limit.in_background ? kCrowdedSpins : kSpins),
        yields_(spins_ + kYields) {}

  /// kSlept: go on, but there was time to look around.
  enum class Verdict : uint8_t { kGoOn, kSlept, kFailed, kTimedOut };

  /// Waits a little, in the end on `signal`, which had the value `seen`.
  Verdict wait(Signal& signal, uint32_t seen);

  /// Something has moved: starts from the beginning, the timeout too.
  void reset() { turns_ = 0, began_ = {}, late_ = false; }

 private:
  static constexpr int kSpins = 4000, kCrowdedSpins = 50, kYields = 50;

  const Limit& limit_;
  const int spins_, yields_;
  int turns_ = 0;
  std::chrono::steady_clock::time_point began_{};
  bool late_ = false;  ///< The time was over at the last look.
};

}  // namespace lockstep::transport
