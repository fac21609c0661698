#include "transport/mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launch/cgroup.h"
#include "launch/kernel.h"
#include "launch/memory.h"
#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

double mebibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

[[noreturn]] void refuse(const char* what) {
  throw Error(fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

[[noreturn]] void refuse_addresses(size_t bytes) {
  const auto limit = errno == ENOMEM ? launch::limits().address_space_bytes : std::nullopt;
  if (!limit) refuse("mmap");
  throw Error(fmt::format(
      "shared memory: one rank's part takes {:.1f} GiB of addresses; this process may have {:.1f} "
      "GiB in all (ulimit -v); hint: ulimit -v unlimited, which costs no memory",
      mebibytes(bytes) / 1024, mebibytes(*limit) / 1024));
}

/// Over a limit the kernel may end the process rather than refuse: better to ask first.
void check_left(size_t bytes) {
  const MemoryLeft left = memory_left();
  if (bytes <= left.bytes) return;
  throw Error(fmt::format(
      "shared memory: {:.1f} MiB asked for, {:.1f} MiB left {}; hint: use fewer ranks or smaller buffers, or "
      "raise the memory limit",
      mebibytes(bytes), mebibytes(left.bytes),
      left.by_control_group ? "within the control group's limit" : "on this machine"));
}

}  // namespace

MemoryLeft memory_left() {
  const launch::Memory machine = launch::memory();
  const launch::CgroupLimits group = launch::cgroup_limits();
  const uint64_t left = group.memory_left_bytes.value_or(machine.available_bytes);
  const bool by_control_group = left < machine.available_bytes;
  return {.bytes = std::min(left, machine.available_bytes),
          .limit_bytes =
              by_control_group ? group.memory_bytes.value_or(machine.total_bytes) : machine.total_bytes,
          .by_control_group = by_control_group};
}

Mapping::Mapping(launch::UniqueFd descriptor, size_t span_bytes)
    : descriptor_(std::move(descriptor)), span_bytes_(span_bytes), owner_(getpid()) {
  void* const base =
      mmap(nullptr, span_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_.get(), 0);
  if (base == MAP_FAILED) refuse_addresses(span_bytes_);
  base_ = static_cast<std::byte*>(base);
  // A child that writes to it would change its parent's memory.
  madvise(base, span_bytes_, MADV_DONTFORK);
}

Mapping Mapping::create(size_t span_bytes) {
  launch::UniqueFd descriptor(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor) refuse("memfd_create");
  span_bytes = (span_bytes + kPage - 1) / kPage * kPage;
  // The kernel would end the process by SIGXFSZ.
  if (const auto limit = launch::limits().file_bytes; limit && *limit < span_bytes) {
    throw Error(
        fmt::format("shared memory: one rank's part counts as a file of {:.1f} MiB; this process may write "
                    "files of {} KiB (ulimit -f); hint: ulimit -f unlimited, which costs no disk",
                    mebibytes(span_bytes), *limit >> 10));
  }
  if (ftruncate(descriptor.get(), static_cast<off_t>(span_bytes)) != 0) refuse("ftruncate");
  if (fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    refuse("sealing");
  }
  return Mapping(std::move(descriptor), span_bytes);
}

Mapping Mapping::attach(int descriptor, int rank) {
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw PeerError(
        fmt::format("shared memory: what rank {} passed is not memory sealed against shrinking; hint: do "
                    "all ranks run the same Lockstep?",
                    rank),
        rank);
  }
  struct stat status {};
  if (fstat(descriptor, &status) != 0) refuse("fstat");
  launch::UniqueFd own(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!own) refuse("dup");
  return Mapping(std::move(own), static_cast<size_t>(status.st_size));
}

Mapping::Mapping(Mapping&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      base_(std::exchange(other.base_, nullptr)),
      span_bytes_(other.span_bytes_),
      owner_(other.owner_) {}

Mapping::~Mapping() {
  // A forked child has nothing mapped here, or something else.
  if (base_ != nullptr && getpid() == owner_) munmap(base_, span_bytes_);
}

void Mapping::take(size_t offset, size_t bytes) {
  check_left(bytes);
  int result = 0;
  do {
    result = fallocate(descriptor_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) refuse("fallocate");
#ifdef MADV_POPULATE_WRITE
  // All page faults at once; where the kernel cannot, they come one by one.
  madvise(base_ + offset, bytes, MADV_POPULATE_WRITE);
#endif
}

void Mapping::give_back(size_t offset, size_t bytes) {
  fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

void Mapping::map_private_in_child() {
  const auto map = [&](int protection) {
    return mmap(base_, span_bytes_, protection, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, descriptor_.get(),
                0);
  };
  // A machine that commits no more memory than it has refuses; what is only read needs none.
  if (map(PROT_READ | PROT_WRITE) == MAP_FAILED) map(PROT_READ);
  owner_ = getpid();
}

}  // namespace lockstep::transport
