#include "transport/process_arena.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "launch/memory.h"
#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Arena>> arenas;  ///< Only grows. The last one is today's, unless it is retired.
  std::atomic<Arena*> newest{nullptr};         ///< The last one, without the lock.
};

/// Never destroyed: tensors may be freed when the process ends, in any order.
Registry& registry() {
  static Registry* const only = [] {
    auto* const made = new Registry;
    // A thread that is within when another forks would leave the child with a lock that nobody releases.
    pthread_atfork(
        [] {
          registry().mutex.lock();
          for (const auto& arena : registry().arenas) arena->lock_for_fork();
        },
        [] {
          for (const auto& arena : registry().arenas) arena->unlock_after_fork();
          registry().mutex.unlock();
        },
        [] {
          for (const auto& arena : registry().arenas) {
            arena->become_private_in_child();
            arena->unlock_after_fork();
          }
          registry().mutex.unlock();
        });
    return made;
  }();
  return *only;
}

}  // namespace

std::shared_ptr<Arena> process_arena() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (all.arenas.empty() || all.arenas.back()->is_retired()) {
    // Addresses only: no rank can use more than the machine has.
    all.arenas.push_back(std::make_shared<Arena>(launch::memory().total_bytes));
    all.newest = all.arenas.back().get();
  }
  return all.arenas.back();
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
  Registry& all = registry();
  if (Arena* const newest = all.newest; newest != nullptr && newest->contains(memory, 1)) {
    return newest->deallocate(memory);
  }
  const std::lock_guard lock(all.mutex);
  for (const auto& arena : all.arenas) {
    if (arena->contains(memory, 1)) return arena->deallocate(memory);
  }
  throw Error("shared memory: a block is freed that lies in no arena of this process");
}

}  // namespace lockstep::transport
