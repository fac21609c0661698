#include "09_ring_allreduce/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <numeric>

#include "lab/sums.h"

namespace lab::ring {

namespace {

std::vector<size_t> sizes(int world) {
  const auto n = static_cast<size_t>(world);
  return {n, 3 * n, n + 1, 1000, 0, 1, n - 1};
}

/// Every rank ends with every contribution once, everywhere.
void check_sums(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({1, 2, 3, 4, 5, 8})) {
    for (const size_t count : sizes(world)) {
      CountedBuffers buffers(world, count);
      auto report = checker.run({.world = world}, [&](Rank& rank) {
        rank.watch(buffers.of(rank.rank()));
        seam.ring_all_reduce(rank, buffers.of(rank.rank()));
      });
      const bool is_silent = world > 1 && report.sent_messages(0) == 0;
      if (world == 4 && count == 12) checker.show(std::move(report));
      const auto wrong = buffers.first_wrong();
      if (!wrong) continue;
      const size_t even = count / static_cast<size_t>(world) * static_cast<size_t>(world);
      if (!is_silent && wrong->is_untouched() && even > 0 && wrong->element >= even) {
        checker.fail("tail left out", wrong->text(),
                     fmt::format("The first {} elements are right, the last {} were left out: {} elements do "
                                 "not divide by {} ranks. Cut "
                                 "them with chunk_begin, some chunks one longer.",
                                 even, count - even, count, world));
      }
      if (is_silent) {
        checker.fail("nothing added", wrong->text(),
                     "The buffer is as it was. Start with the reduce-scatter, steps 0 to P - 2.");
      }
      if (wrong->has_repeats()) {
        checker.fail("counted twice", wrong->text(),
                     "A contribution was added more than once. In the second half the chunks that arrive are "
                     "complete: they replace yours.");
      }
      if (std::accumulate(wrong->counts.begin(), wrong->counts.end(), 0) == 1) {
        checker.fail("wrong sum", wrong->text(),
                     "One contribution alone is left. In the first phase what arrives is added to yours: "
                     "receive it into a vector of its own, since recv writes over what was there.");
      }
      checker.fail("wrong sum", wrong->text(),
                   "Follow one chunk: which rank adds to it in which step? In step s rank r sends chunk r - "
                   "s - 1 and adds to chunk r - s - 2.");
    }
  }
  checker.proved("every rank holds every contribution once, for 1 to 8 ranks and sizes that do not divide");
}

/// One chunk a step, to the next rank alone.
void check_bytes(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({3, 5, 8, 2})) {
    const size_t count = 1000;
    std::vector<std::vector<float>> data(static_cast<size_t>(world), std::vector<float>(count, 1));
    const auto report = checker.run({.world = world}, [&](Rank& rank) {
      seam.ring_all_reduce(rank, data[static_cast<size_t>(rank.rank())]);
    });
    const auto chunk =
        static_cast<int64_t>((count + static_cast<size_t>(world) - 1) / static_cast<size_t>(world));
    const int64_t most = 2 * (world - 1) * chunk * 4;
    for (int r = 0; r < world; ++r) {
      for (int to = 0; to < world; ++to) {
        checker.expect(
            to == (r + 1) % world || report.bytes[static_cast<size_t>(r)][static_cast<size_t>(to)] == 0,
            "not a ring",
            fmt::format("rank {} sent {} bytes to rank {}", r,
                        report.bytes[static_cast<size_t>(r)][static_cast<size_t>(to)], to),
            "In a ring a rank sends to the next one and to nobody else.");
      }
      checker.expect(report.sent_bytes(r) <= most, "whole buffer sent",
                     fmt::format("rank {} of {} sent {} bytes; 2(P-1) chunks of at most {} floats are {}", r,
                                 world, report.sent_bytes(r), chunk, most),
                     "Send one chunk in a step. Whole buffers going round make every rank send (P-1) S "
                     "bytes: more than the naive way.");
      checker.expect(report.sent_messages(r) == 2 * (world - 1), "wrong steps",
                     fmt::format("rank {} of {} sent {} messages, expected 2(P-1) = {}", r, world,
                                 report.sent_messages(r), 2 * (world - 1)),
                     "P - 1 steps of reduce-scatter and P - 1 of all-gather, one message in each.");
    }
  }
  checker.proved("a rank sends 2(P-1) chunks, 2(P-1)/P of the data, to its next rank alone");
}

void check_rendezvous(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 3, 4, 5})) {
    std::vector<std::vector<float>> data(static_cast<size_t>(world), std::vector<float>(100, 1));
    checker.run({.world = world, .rendezvous = true},
                [&](Rank& rank) { seam.ring_all_reduce(rank, data[static_cast<size_t>(rank.rank())]); });
  }
  checker.proved("nobody waits for ever, even if a send waits for its receive");
}

/// The same bits on all ranks: replicas must not drift apart.
void check_bits(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({3, 5, 8})) {
    std::vector<std::vector<float>> data;
    for (int r = 0; r < world; ++r) {
      auto& row = data.emplace_back();
      for (uint64_t i = 0; i < 101; ++i)
        row.push_back(static_cast<float>(checker.draw(i * 64 + static_cast<uint64_t>(r)) >> 40) / 1e3F);
    }
    checker.run({.world = world},
                [&](Rank& rank) { seam.ring_all_reduce(rank, data[static_cast<size_t>(rank.rank())]); });
    for (int r = 1; r < world; ++r) {
      for (size_t i = 0; i < data[0].size(); ++i) {
        const float first = data[0][i], other = data[static_cast<size_t>(r)][i];
        checker.expect(
            std::memcmp(&first, &other, sizeof first) == 0, "different bits",
            fmt::format("element {} is {:.9g} on rank 0 and {:.9g} on rank {}", i, first, other, r),
            "Floating-point sums depend on their order. Add each chunk on one rank, and pass the result "
            "round as it is.");
      }
    }
  }
  checker.proved("all ranks hold the same bits");
}

void check_time(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 4, 8})) {
    const size_t count = 1024;
    std::vector<std::vector<float>> data(static_cast<size_t>(world), std::vector<float>(count, 1));
    const double alpha = 5, beta = 0.01;
    const auto report =
        checker.run({.world = world, .latency_us = alpha, .us_per_byte = beta, .keep_events = false},
                    [&](Rank& rank) { seam.ring_all_reduce(rank, data[static_cast<size_t>(rank.rank())]); });
    const double expected = 2 * (world - 1) * (alpha + 4.0 * static_cast<double>(count) / world * beta);
    checker.note(
        fmt::format("{} ranks, 4 KiB: {:.2f} us on the virtual clock; 2(P-1)(alpha + S/P beta) = {:.2f} us",
                    world, report.time_us, expected));
    checker.expect(
        report.time_us <= expected * 1.0001, "slower than a ring",
        fmt::format(
            "{} ranks took {:.2f} us on the virtual clock, expected 2(P-1)(alpha + S/P beta) = {:.2f} us",
            world, report.time_us, expected),
        "In each step all ranks must send and receive at once. Start the send, receive, then wait for the "
        "send.");
  }
  checker.proved("its time is 2(P-1)(alpha + S/P beta) on the virtual clock");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_sums(seam, checker);
  check_bytes(seam, checker);
  check_rendezvous(seam, checker);
  check_bits(seam, checker);
  check_time(seam, checker);
}

}  // namespace lab::ring
