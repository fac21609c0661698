#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "lockstep/trace/writer.h"

namespace lockstep::trace {

/// A span as rings hold it: words that can be stored one by one.
struct Event {
  static constexpr size_t kWords = 5;
  static constexpr int kStreamBits = 4;
  static_assert(Name::kMostNames < 1U << (32 - kStreamBits) && kStreamNames.size() <= 1U << kStreamBits);

  std::array<uint64_t, kWords> words;

  static Event of(Name name, int64_t begin_ns, int64_t end_ns, const Details& details) {
    const uint32_t name_and_stream = name.id_ << kStreamBits | static_cast<uint32_t>(details.stream);
    return {{static_cast<uint64_t>(begin_ns), static_cast<uint64_t>(end_ns),
             static_cast<uint64_t>(details.bytes), static_cast<uint64_t>(details.call),
             uint64_t{static_cast<uint32_t>(details.peer)} << 32 | name_and_stream}};
  }

  /// Brought into the bounds of a Span, whatever the writer gave.
  Span span(int rank) const {
    constexpr auto kLowWord = std::numeric_limits<uint32_t>::max();
    const auto word = static_cast<uint32_t>(words[4] & kLowWord);
    const auto stream = std::min<size_t>(word & ((1U << kStreamBits) - 1), kStreamNames.size() - 1);
    const int64_t begin_ns = std::clamp(static_cast<int64_t>(words[0]), -kLargest, kLargest);
    return {.name = std::string(Name(word >> kStreamBits).text()),
            .rank = rank,
            .stream = static_cast<Stream>(stream),
            .begin_ns = begin_ns,
            .end_ns = std::clamp(static_cast<int64_t>(words[1]), begin_ns, kLargest),
            .bytes = std::clamp(static_cast<int64_t>(words[2]), int64_t{0}, kLargest),
            .peer = std::max(-1, static_cast<int>(static_cast<uint32_t>(words[4] >> 32))),
            .call = std::clamp(static_cast<int64_t>(words[3]), int64_t{-1}, kLargest)};
  }
};

}  // namespace lockstep::trace
