#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "lab/disk.h"

namespace lab {

/// Puts numbers, and vectors of numbers, one behind the other.
class Packer {
 public:
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void add(const Number& number) {
    const auto* const begin = reinterpret_cast<const std::byte*>(&number);
    bytes_.insert(bytes_.end(), begin, begin + sizeof number);
  }
  template <typename Number>
  void add(const std::vector<Number>& numbers) {
    add(static_cast<uint64_t>(numbers.size()));
    for (const Number& number : numbers) add(number);
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

/// Takes them out again, in the same order. Throws std::runtime_error at the end of the bytes.
class Unpacker {
 public:
  explicit Unpacker(const Bytes& bytes) : bytes_(bytes) {}

  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void take(Number& number) {
    need(sizeof number);
    std::memcpy(&number, bytes_.data() + at_, sizeof number);
    at_ += sizeof number;
  }
  template <typename Number>
  void take(std::vector<Number>& numbers) {
    uint64_t count = 0;
    take(count);
    if (count > (bytes_.size() - at_) / sizeof(Number)) need(bytes_.size());  // throws
    numbers.resize(count);
    for (Number& number : numbers) take(number);
  }

 private:
  void need(size_t count) const {
    if (bytes_.size() - at_ >= count) return;
    throw std::runtime_error(
        fmt::format("Unpacker: asked for {} bytes at place {} of {}; take what was added, in that order",
                    count, at_, bytes_.size()));
  }

  const Bytes& bytes_;
  size_t at_ = 0;
};

/// FNV-1a, 64 bits: another number as soon as a byte is another one.
inline uint64_t checksum(const Bytes& bytes) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3U;
  return hash;
}

/// The bytes, and their checksum behind them.
inline Bytes seal(const Bytes& bytes) {
  Bytes sealed = bytes;
  const uint64_t sum = checksum(bytes);
  const auto* const begin = reinterpret_cast<const std::byte*>(&sum);
  sealed.insert(sealed.end(), begin, begin + sizeof sum);
  return sealed;
}

/// The bytes that were sealed; none if anything is missing or was changed.
inline std::optional<Bytes> unseal(const Bytes& sealed) {
  if (sealed.size() < sizeof(uint64_t)) return std::nullopt;
  Bytes bytes(sealed.begin(), sealed.end() - static_cast<std::ptrdiff_t>(sizeof(uint64_t)));
  if (seal(bytes) != sealed) return std::nullopt;
  return bytes;
}

}  // namespace lab
