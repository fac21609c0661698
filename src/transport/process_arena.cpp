#include "transport/process_arena.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "launch/memory.h"
#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

/// The arenas of this process, and what keeps them whole over a fork.
struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Arena>> arenas;  ///< Only grows. The last one is today's, unless it is retired.
  std::atomic<Arena*> newest{nullptr};         ///< The last one, without the lock.

  Registry() {
    // A thread that is within when another forks would leave the child with a lock that nobody releases.
    pthread_atfork([] { before_fork(); }, [] { after_fork(/*in_child=*/false); },
                   [] { after_fork(/*in_child=*/true); });
  }

  static void before_fork();
  static void after_fork(bool in_child);
};

/// Never destroyed: tensors may be freed when the process ends, in any order.
Registry& registry() {
  static Registry& only = *new Registry;
  return only;
}

/// Made when the program is loaded, before any thread could fork.
[[maybe_unused]] const Registry& kMade = registry();

void Registry::before_fork() {
  registry().mutex.lock();
  for (const auto& arena : registry().arenas) arena->lock_for_fork();
}

void Registry::after_fork(bool in_child) {
  for (const auto& arena : registry().arenas) {
    if (in_child) arena->become_private_in_child();
    arena->unlock_after_fork();
  }
  registry().mutex.unlock();
}

}  // namespace

size_t arena_span_bytes(uint64_t memory_bytes, int ranks, const launch::Limits& limits) {
  constexpr uint64_t kMost = uint64_t{1} << 46;  // half of what a process can address
  constexpr uint64_t kLeast = uint64_t{64} << 20;
  const uint64_t addresses = std::min(kMost, limits.address_space_bytes.value_or(2 * kMost) / 2);
  const uint64_t span = std::min({8 * memory_bytes, addresses / static_cast<uint64_t>(std::max(ranks, 1)),
                                  limits.file_bytes.value_or(kMost)});
  return std::max(kLeast, span / Mapping::kPage * Mapping::kPage);
}

std::shared_ptr<Arena> process_arena(int ranks) {
  const std::lock_guard lock(registry().mutex);
  if (registry().arenas.empty() || registry().arenas.back()->is_retired()) {
    uint64_t memory_bytes = launch::memory().total_bytes;
#if defined(LOCKSTEP_TSAN)
    memory_bytes /= 8;  // it keeps books on every address, which takes seconds
#endif
    // All cores of the host: this rank may be bound to one.
    if (ranks <= 0) ranks = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    registry().arenas.push_back(
        std::make_shared<Arena>(arena_span_bytes(memory_bytes, ranks, launch::limits())));
    registry().newest = registry().arenas.back().get();
  }
  return registry().arenas.back();
}

Arena::Use use_of_process_arenas() {
  const std::lock_guard lock(registry().mutex);
  Arena::Use sum;
  for (const auto& arena : registry().arenas) {
    const Arena::Use use = arena->use();
    sum.used_bytes += use.used_bytes;
    sum.peak_used_bytes += use.peak_used_bytes;
    sum.held_bytes += use.held_bytes;
  }
  return sum;
}

void restart_peak_of_process_arenas() {
  const std::lock_guard lock(registry().mutex);
  for (const auto& arena : registry().arenas) arena->restart_peak();
}

void trim_process_arenas() {
  const std::lock_guard lock(registry().mutex);
  for (const auto& arena : registry().arenas) arena->trim();
}

void* allocate_in_process_arena(size_t bytes) {
  for (;;) {
    Arena* arena = registry().newest;
    if (arena != nullptr) {
      if (void* const memory = arena->allocate(bytes)) return memory;
    }
    process_arena();
  }
}

void deallocate_in_process_arena(void* memory) {
  if (Arena* const newest = registry().newest; newest != nullptr && newest->contains(memory, 1)) {
    return newest->deallocate(memory);
  }
  const std::lock_guard lock(registry().mutex);
  for (const auto& arena : registry().arenas) {
    if (arena->contains(memory, 1)) return arena->deallocate(memory);
  }
  throw Error("shared memory: a block is freed that lies in no arena of this process");
}

}  // namespace lockstep::transport
