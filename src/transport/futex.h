#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace lockstep::transport {

// Waiting on a word that other processes change. std::atomic::wait of libstdc++ 12 asks the kernel for a
// private futex, which does not work across processes.

using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);

/// Sleeps while the word has the value `seen`, at most so long; may wake for no reason.
inline void futex_wait(const Word& word, uint32_t seen, std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec time = {.tv_sec = static_cast<time_t>(seconds.count()),
                         .tv_nsec = static_cast<long>((at_most - seconds).count())};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

inline void futex_wake_all(const Word& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// A word that some wait for and one raises. The raiser makes a system call only if somebody sleeps.
struct Signal {
  Word value = 0;
  Word sleepers = 0;

  /// Raises the value. Those that spin see it; wake() must follow soon for those that sleep.
  void raise_to(uint32_t number) { value.store(number, std::memory_order_release); }
  void ring() {
    value.fetch_add(1, std::memory_order_release);
    wake();
  }
  void wake() {
    // First the value, then the look at the sleepers; a sleeper does the reverse: one of them sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_relaxed) != 0) futex_wake_all(value);
  }
  void sleep(uint32_t seen, std::chrono::nanoseconds at_most) {
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (value.load(std::memory_order_seq_cst) == seen) futex_wait(value, seen, at_most);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
};

}  // namespace lockstep::transport
