#include "transport/patience.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace lockstep::transport {

namespace {

// A failure is noticed this late at most: nobody has to know whom to wake.
constexpr std::chrono::nanoseconds kSleepSlice = std::chrono::milliseconds(20);

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Patience::Verdict Patience::wait(Signal& signal, uint32_t seen) {
  if (++turns_ <= spins_) {
    pause_core();
    return Verdict::kGoOn;
  }
  if (limit_.failed->load(std::memory_order_acquire)) return Verdict::kFailed;
  if (turns_ <= yields_) {
    sched_yield();
    return Verdict::kGoOn;
  }
  const auto now = std::chrono::steady_clock::now();
  if (began_ == std::chrono::steady_clock::time_point{}) began_ = now;
  const auto left = limit_.timeout - (now - began_);
  // This process may have been stopped since its last look.
  if (left.count() <= 0) return std::exchange(late_, true) ? Verdict::kTimedOut : Verdict::kGoOn;
  signal.sleep(seen, std::min<std::chrono::nanoseconds>(left, kSleepSlice));
  return Verdict::kSlept;
}

}  // namespace lockstep::transport
