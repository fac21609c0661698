#include "transport/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "launch/cgroup.h"
#include "launch/memory.h"
#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

constexpr size_t kAlignment = 128;  // two cache lines: neighbours are fetched together
constexpr size_t kPage = 4096;
constexpr size_t kGrowth = size_t{1} << 20;  // asking the system costs more than a little memory

constexpr size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

[[noreturn]] void refuse(const char* what) {
  throw Error(fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

double mebibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

/// Over a limit the kernel may end the process rather than refuse: better to ask first.
void check_left(size_t bytes) {
  const uint64_t available = launch::memory().available_bytes;
  const uint64_t left = launch::cgroup_limits().memory_left_bytes.value_or(available);
  if (bytes <= std::min(available, left)) return;
  throw Error(
      fmt::format("shared memory: {:.1f} MiB asked for, {:.1f} MiB left{}; hint: use fewer ranks or smaller "
                  "buffers, or raise the "
                  "memory limit",
                  mebibytes(bytes), mebibytes(std::min(available, left)),
                  left < available ? " within the control group's limit" : " on this machine"));
}

}  // namespace

Mapping::Mapping(launch::UniqueFd descriptor, size_t span_bytes)
    : descriptor_(std::move(descriptor)), span_bytes_(span_bytes) {
  void* const base =
      mmap(nullptr, span_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_.get(), 0);
  if (base == MAP_FAILED) refuse("mmap");
  base_ = static_cast<std::byte*>(base);
  // A child that writes to it would change its parent's memory.
  madvise(base, span_bytes_, MADV_DONTFORK);
}

Mapping Mapping::create(size_t span_bytes) {
  launch::UniqueFd descriptor(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor) refuse("memfd_create");
  span_bytes = round_up(span_bytes, kPage);
  if (ftruncate(descriptor.get(), static_cast<off_t>(span_bytes)) != 0) refuse("ftruncate");
  if (fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    refuse("sealing");
  }
  return Mapping(std::move(descriptor), span_bytes);
}

Mapping Mapping::attach(int descriptor) {
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error("shared memory: a peer's descriptor is not sealed memory");
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
      span_bytes_(other.span_bytes_) {}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, span_bytes_);
}

void Mapping::take(size_t offset, size_t bytes) {
  check_left(bytes);
  int result = 0;
  do {
    result = fallocate(descriptor_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) refuse("fallocate");
}

void Mapping::give_back(size_t offset, size_t bytes) {
  fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

Arena::Arena(size_t span_bytes) : mapping_(Mapping::create(span_bytes)) {
  insert_free(0, {mapping_.span_bytes(), false});
}

void* Arena::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  // Large blocks begin and end on pages, so that they can be given back.
  bytes = round_up(std::max<size_t>(bytes, 1), bytes < kPage ? kAlignment : kPage);
  auto fit = free_backed_.lower_bound({bytes, 0});
  const bool backed = fit != free_backed_.end();
  if (!backed) {
    fit = free_unbacked_.lower_bound({bytes, 0});
    if (fit == free_unbacked_.end()) {
      throw Error(fmt::format("shared memory: {:.1f} MiB asked for, {:.1f} of {:.1f} MiB of addresses in use",
                              mebibytes(bytes), mebibytes(used_bytes_), mebibytes(mapping_.span_bytes())));
    }
  }
  const size_t offset = fit->second;
  const size_t whole = fit->first;
  if (!backed) {
    const size_t taken = std::min(whole, std::max(round_up(bytes, kPage), kGrowth));
    mapping_.take(offset, taken);
    held_bytes_ += taken;
    erase_free(free_.find(offset));
    if (whole > taken) insert_free(offset + taken, {whole - taken, false});
    if (taken > bytes) insert_free(offset + bytes, {taken - bytes, true});
  } else {
    erase_free(free_.find(offset));
    if (whole > bytes) insert_free(offset + bytes, {whole - bytes, true});
  }
  used_.emplace(offset, Block{bytes, true});
  used_bytes_ += bytes;
  return mapping_.base() + offset;
}

void Arena::deallocate(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto block = used_.find(offset_of(memory));
  if (block == used_.end()) {
    throw Error("shared memory: a block is freed that was not allocated, or has been freed before");
  }
  used_bytes_ -= block->second.bytes;
  insert_free(block->first, block->second);
  used_.erase(block);
}

void Arena::trim() {
  const std::lock_guard lock(mutex_);
  for (auto [bytes, offset] : std::set(free_backed_)) {
    const size_t begin = round_up(offset, kPage);
    const size_t end = (offset + bytes) / kPage * kPage;
    if (begin >= end) continue;
    erase_free(free_.find(offset));
    mapping_.give_back(begin, end - begin);
    held_bytes_ -= end - begin;
    if (begin > offset) insert_free(offset, {begin - offset, true});
    insert_free(begin, {end - begin, false});
    if (offset + bytes > end) insert_free(end, {offset + bytes - end, true});
  }
}

void Arena::insert_free(size_t offset, Block block) {
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + block.bytes && next->second.backed == block.backed) {
    block.bytes += next->second.bytes;
    erase_free(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes == offset && before->second.backed == block.backed) {
      offset = before->first;
      block.bytes += before->second.bytes;
      erase_free(before);
    }
  }
  free_.emplace(offset, block);
  (block.backed ? free_backed_ : free_unbacked_).emplace(block.bytes, offset);
}

void Arena::erase_free(Blocks::iterator block) {
  (block->second.backed ? free_backed_ : free_unbacked_).erase({block->second.bytes, block->first});
  free_.erase(block);
}

size_t Arena::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

size_t Arena::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_bytes_;
}

}  // namespace lockstep::transport
