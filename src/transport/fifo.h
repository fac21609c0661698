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

  /// Writes as many of the bytes as there is room for; returns how many.
  size_t write(const std::byte* from, size_t bytes) {
    const uint64_t at = written.load(std::memory_order_relaxed);
    const size_t room = kBytes - static_cast<size_t>(at - read.load(std::memory_order_acquire));
    bytes = std::min(bytes, room);
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
    bytes = std::min(bytes, static_cast<size_t>(written.load(std::memory_order_acquire) - at));
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
