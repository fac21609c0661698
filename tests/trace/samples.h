#pragma once

#include <algorithm>
#include <limits>
#include <random>

#include "lockstep/trace/span.h"

namespace lockstep::trace {

/// Two ranks: a collective with steps that overlap, and a span of the user's.
inline Trace sample() {
  const auto rank = [](int number, int64_t offset_ns, int64_t dropped) {
    return RankRecord{.rank = number,
                      .host = "node-a",
                      .job = "job-7",
                      .clock_offset_ns = offset_ns,
                      .monotonic_ns = 1000,
                      .wall_ns = 1'700'000'000'000'000'000,
                      .dropped = dropped};
  };
  const auto step = [](const char* text, int64_t begin_ns, int64_t end_ns, int64_t bytes, int peer) {
    return Span{text, 0, Stream::kCommunication, begin_ns, end_ns, bytes, peer, 812};
  };
  return {.ranks = {rank(0, 0, 0), rank(1, -500, 12)},
          .spans = {step("all_reduce ring", 5000, 9001, 8192, -1),
                    step("send 1 slot 1", 5000, 7000, 4096, 1),
                    step("recv_reduce 1 slot 0", 5100, 8000, 4096, 1),
                    {.name = "optimizer", .rank = 1, .begin_ns = 5600, .end_ns = 6600}}};
}

/// Any trace within the bounds, with names of any bytes that are UTF-8.
inline Trace any_trace(uint32_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  const auto time = [&] {
    return below(4) == 0 ? (below(2) == 0 ? kLargest : -kLargest) : below(1 << 20) - 1000;
  };
  const auto text = [&] {
    static const std::vector<std::string> kPieces = {
        "a", "\"", "\\", "\n", std::string(1, '\0'), "\x7f", "ü", "漢", "😀", "</script>", "{}"};
    std::string result;
    for (int64_t n = below(6); n > 0; --n)
      result += kPieces[static_cast<size_t>(below(static_cast<int64_t>(kPieces.size())))];
    return result;
  };
  Trace trace;
  const int64_t ranks = 1 + below(4);
  for (int rank = 0; rank < ranks; ++rank) {
    trace.ranks.push_back(
        {3 * rank, text(), "", time(), time(), below(std::numeric_limits<int64_t>::max()), below(9)});
  }
  for (int64_t n = below(50); n > 0; --n) {
    const int64_t one = time();
    const int64_t other = time();
    trace.spans.push_back({text(), 3 * static_cast<int>(below(ranks)), static_cast<Stream>(below(4)),
                           std::min(one, other), std::max(one, other), below(3) == 0 ? kLargest : below(3),
                           static_cast<int>(below(5)) - 1, below(4) == 0 ? kLargest : below(3) - 1});
  }
  sort(trace);
  return trace;
}

}  // namespace lockstep::trace
