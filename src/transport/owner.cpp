#include "transport/owner.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

/// getpid(), remembered in a page that the kernel clears in a forked child.
pid_t own_pid() {
  static auto* const remembered = []() -> std::atomic<pid_t>* {
    constexpr size_t kBytes = 4096;
    void* const page = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || madvise(page, kBytes, MADV_WIPEONFORK) != 0) return nullptr;
    return static_cast<std::atomic<pid_t>*>(page);
  }();
  if (remembered == nullptr) return getpid();
  pid_t pid = remembered->load(std::memory_order_relaxed);
  if (pid == 0) remembered->store(pid = getpid(), std::memory_order_relaxed);
  return pid;
}

}  // namespace

Owner::Owner() : pid_(own_pid()) {}

bool Owner::is_here() const {
  return own_pid() == pid_;
}

void Owner::require(std::string_view operation, int rank) const {
  if (is_here()) return;
  throw UsageError(fmt::format(
      "{} on rank {}: called in a forked child, process {}; the communicator was created by process "
      "{}; hint: communicate in that process, or fork before init_distributed()",
      operation, rank, own_pid(), pid_));
}

}  // namespace lockstep::transport
