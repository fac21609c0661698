#include "launch/kernel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep::launch {

namespace {

/// "" if a call succeeded, else what the kernel said.
std::string problem(bool succeeded) {
  return succeeded ? "" : std::strerror(errno);
}

std::string try_pidfd() {
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  std::string found = problem(fd >= 0);
  if (fd >= 0) close(fd);
  return found;
}

/// Only asks, since becoming one would change this process.
std::string try_subreaper() {
  int is_one = 0;
  return problem(prctl(PR_GET_CHILD_SUBREAPER, &is_one, 0, 0, 0) == 0);
}

std::string try_memfd() {
  constexpr size_t kBytes = 4096;
  const int fd = memfd_create("lockstep-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return problem(false);
  std::string found = problem(ftruncate(fd, kBytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  if (found.empty()) {
    void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    found = problem(mapped != MAP_FAILED);
    if (mapped != MAP_FAILED) munmap(mapped, kBytes);
  }
  close(fd);
  return found;
}

std::optional<uint64_t> finite(rlim_t value) {
  if (value == RLIM_INFINITY) return std::nullopt;
  return value;
}

}  // namespace

KernelFeatures kernel_features() {
  return {.pidfd_problem = try_pidfd(), .subreaper_problem = try_subreaper(), .memfd_problem = try_memfd()};
}

Limits limits() {
  rlimit addresses{};
  rlimit locked{};
  rlimit file{};
  rlimit files{};
  getrlimit(RLIMIT_AS, &addresses);
  getrlimit(RLIMIT_MEMLOCK, &locked);
  getrlimit(RLIMIT_FSIZE, &file);
  getrlimit(RLIMIT_NOFILE, &files);
  return {.address_space_bytes = finite(addresses.rlim_cur),
          .locked_memory_bytes = finite(locked.rlim_cur),
          .file_bytes = finite(file.rlim_cur),
          .open_files = finite(files.rlim_cur),
          .open_files_hard = finite(files.rlim_max)};
}

}  // namespace lockstep::launch
