#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace lockstep::transport {

/// A stream of bytes from one rank to another, in shared memory: one writes, one reads.
struct Fifo {
  static constexpr size_t kBytes = size_t{64} << 10;

  alignas(128) std::atomic<uint64_t> written = 0;
  alignas(128) std::atomic<uint64_t> read = 0;
  alignas(128) std::byte data[kBytes];

  /// What write() and take() return if the positions, which the other rank can overwrite, are impossible.
  static constexpr size_t kCorrupt = SIZE_MAX;

  /// Writes as many of the bytes as there is room for; returns how many.
  size_t write(const std::byte* from, size_t bytes) {
    const uint64_t at = written.load(std::memory_order_relaxed);
    const uint64_t unread = at - read.load(std::memory_order_acquire);
    if (unread > kBytes) return kCorrupt;
    bytes = std::min<size_t>(bytes, kBytes - unread);
    if (bytes == 0) return 0;  // an empty message has no address
    const size_t begin = at % kBytes;
    const size_t before_end = std::min(bytes, kBytes - begin);
    std::memcpy(data + begin, from, before_end);
    std::memcpy(data, from + before_end, bytes - before_end);
    written.store(at + bytes, std::memory_order_release);
    return bytes;
  }

  /// Reads as many as there are, at most `bytes`; returns how many.
  size_t take(std::byte* to, size_t bytes) {
    const uint64_t at = read.load(std::memory_order_relaxed);
    const uint64_t unread = written.load(std::memory_order_acquire) - at;
    if (unread > kBytes) return kCorrupt;
    bytes = std::min<size_t>(bytes, unread);
    if (bytes == 0) return 0;
    const size_t begin = at % kBytes;
    const size_t before_end = std::min(bytes, kBytes - begin);
    std::memcpy(to, data + begin, before_end);
    std::memcpy(to + before_end, data, bytes - before_end);
    read.store(at + bytes, std::memory_order_release);
    return bytes;
  }
};

}  // namespace lockstep::transport
