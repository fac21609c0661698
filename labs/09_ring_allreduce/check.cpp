#include "09_ring_allreduce/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "lab/collectives.h"
#include "lab/sums.h"

namespace lab::ring {

namespace {

std::vector<size_t> sizes(int world) {
  const auto n = static_cast<size_t>(world);
  return {3 * n, n, n + 1, 1000, 0, 1, n - 1};  // three floats or more first: they show what was done
}

/// What a run left.
struct Case {
  size_t count = 0;
  CountedBuffers buffers;
  bool is_silent = false;  ///< Rank 0 sent nothing.
};

void expect_sums(Checker& checker, int world, const Case& one) {
  checker.expect(one.buffers.damage().empty(), "wrote outside",
                 fmt::format("{} (of {}, {})", one.buffers.damage(),
                             counted(static_cast<int64_t>(one.count), "float"), counted(world, "rank")),
                 "Memory beyond the buffer belongs to somebody else. Where does your last chunk end?");
  const auto wrong = one.buffers.first_wrong();
  if (!wrong) return;
  const size_t even = one.count / static_cast<size_t>(world) * static_cast<size_t>(world);
  if (!one.is_silent && wrong->is_untouched() && even > 0 && wrong->element >= even) {
    checker.fail("tail left out", wrong->text(),
                 fmt::format("The first {} elements are right, the last {} were left out: {} elements do "
                             "not divide by {} ranks. Cut them with chunk_begin, some chunks one longer.",
                             even, one.count - even, one.count, world));
  }
  if (one.is_silent) {
    checker.fail("nothing added", wrong->text(),
                 "The buffer is as it was. Start with the reduce-scatter, steps 0 to P - 2.");
  }
  if (std::isnan(wrong->found)) {
    checker.fail(
        "read too early", wrong->text(),
        "Memory that a message is to be received into holds NaNs until wait() has returned. Where do you "
        "read it before that?");
  }
  if (const auto operation = one.buffers.other_operation(wrong->rank); !operation.empty()) {
    checker.fail(
        operation + " instead of the sum", wrong->text(),
        fmt::format("Every element holds the {} of all contributions. Add them, and nothing else: no "
                    "division, no comparison.",
                    operation));
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

/// Runs the sizes one after the other in one process, as a training does.
void check_sums_of(const Seam& seam, Checker& checker, int world, const std::vector<size_t>& counts) {
  checker.in_world(world);
  const auto cases = checker.in_child([&] {
    std::vector<Case> all;
    for (const size_t count : counts) {
      auto& one = all.emplace_back(Case{count, CountedBuffers::make(world, count)});
      auto report = checker.run({.world = world}, [&](Rank& rank) {
        rank.watch(one.buffers.of(rank.rank()));
        seam.ring_all_reduce(rank, one.buffers.of(rank.rank()));
      });
      one.is_silent = world > 1 && report.sent_messages(0) == 0;
      if (world == 4 && count == 12) checker.show(std::move(report));
    }
    return all;
  });
  for (const auto& one : cases) expect_sums(checker, world, one);
}

/// Every rank ends with every contribution once, everywhere.
void check_sums(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({1, 2, 3, 4, 5, 6, 7, 8}))
    check_sums_of(seam, checker, world, sizes(world));
  checker.proved("every rank holds every contribution once, for 1 to 8 ranks and sizes that do not divide");
  for (const int world : checker.fresh_worlds(2, 9, 33)) {
    const auto salt = static_cast<uint64_t>(world);
    check_sums_of(seam, checker, world,
                  {static_cast<size_t>(checker.draw_between(salt, 4097, 9999)),
                   static_cast<size_t>(checker.draw_between(salt + 1, 1, 2 * world))});
  }
  checker.proved("the same for worlds and sizes drawn from the seed, above 8 ranks and 4096 floats");
}

/// Runs `count` floats on `world` ranks, in a child.
struct Run {
  Report report;
  std::vector<std::vector<float>> data;  ///< By rank.
};
Run run_ring(const Seam& seam, Checker& checker, const WorldOptions& options, Run run) {
  checker.in_world(options.world);
  return checker.in_child([&] {
    run.report = checker.run(
        options, [&](Rank& rank) { seam.ring_all_reduce(rank, run.data[static_cast<size_t>(rank.rank())]); });
    return run;
  });
}
Run ones(int world, size_t count) {
  return {{}, std::vector<std::vector<float>>(static_cast<size_t>(world), std::vector<float>(count, 1))};
}

/// One chunk a step, to the next rank alone.
void check_bytes_of(const Seam& seam, Checker& checker, int world, size_t count) {
  const auto report = run_ring(seam, checker, {.world = world}, ones(world, count)).report;
  const auto chunk =
      static_cast<int64_t>((count + static_cast<size_t>(world) - 1) / static_cast<size_t>(world));
  const int64_t most = 2 * (world - 1) * chunk * 4;
  for (int r = 0; r < world; ++r) {
    for (int to = 0; to < world; ++to) {
      checker.expect(
          to == (r + 1) % world || report.messages[static_cast<size_t>(r)][static_cast<size_t>(to)] == 0,
          "not a ring",
          fmt::format("rank {} of {} sent {} bytes of {} floats to rank {}", r, world,
                      report.bytes[static_cast<size_t>(r)][static_cast<size_t>(to)], count, to),
          "In a ring a rank sends to the next one and to nobody else.");
    }
    checker.expect(report.sent_bytes(r) <= most, "whole buffer sent",
                   fmt::format("rank {} of {} sent {} bytes; 2(P-1) chunks of at most {} floats are {}", r,
                               world, report.sent_bytes(r), chunk, most),
                   "Send one chunk in a step. Whole buffers going round make every rank send (P-1) S "
                   "bytes: more than the naive way.");
    // Of a buffer with fewer floats than ranks some chunks are empty: those need not be sent.
    const bool may_skip = count < static_cast<size_t>(world);
    const auto sent = report.sent_messages(r);
    checker.expect(sent == 2 * (world - 1) || (may_skip && sent < 2 * (world - 1)), "wrong steps",
                   fmt::format("rank {} of {} sent {} messages for {} floats, expected 2(P-1) = {}", r, world,
                               sent, count, 2 * (world - 1)),
                   "P - 1 steps of reduce-scatter and P - 1 of all-gather, one message in each.");
  }
}

void check_bytes(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({3, 5, 8, 2})) check_bytes_of(seam, checker, world, 1000);
  for (const int world : checker.fresh_worlds(2, 4, 24)) {
    const auto salt = 50 + static_cast<uint64_t>(world);
    check_bytes_of(seam, checker, world, static_cast<size_t>(checker.draw_between(salt, world, 499)));
    check_bytes_of(seam, checker, world, static_cast<size_t>(checker.draw_between(salt + 2, 2, 2 * world)));
    check_bytes_of(seam, checker, world, static_cast<size_t>(checker.draw_between(salt + 1, 4097, 9999)));
  }
  checker.proved("a rank sends 2(P-1) chunks, 2(P-1)/P of the data, to its next rank alone");
}

void check_rendezvous(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 3, 4, 5}))
    run_ring(seam, checker, {.world = world, .rendezvous = true}, ones(world, 100));
  for (const int world : checker.fresh_worlds(1, 6, 20)) {
    const auto count = static_cast<size_t>(checker.draw_between(70, 1, 5000));
    run_ring(seam, checker, {.world = world, .rendezvous = true}, ones(world, count));
  }
  checker.proved("nobody waits for ever, even if a send waits for its receive");
}

/// The same bits on all ranks: replicas must not drift apart.
void check_bits(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({3, 5, 8})) {
    Run values;
    for (int r = 0; r < world; ++r) {
      auto& row = values.data.emplace_back();
      for (uint64_t i = 0; i < 101; ++i)
        row.push_back(static_cast<float>(checker.draw(i * 64 + static_cast<uint64_t>(r)) >> 40) / 1e3F);
    }
    const auto data = run_ring(seam, checker, {.world = world}, values).data;
    expect_exact(checker, values.data, data[0]);
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
    const double alpha = 5, beta = 0.01;
    const auto report =
        run_ring(seam, checker,
                 {.world = world, .latency_us = alpha, .us_per_byte = beta, .keep_events = false},
                 ones(world, count))
            .report;
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
  forbid_collectives();
  check_sums(seam, checker);
  check_bytes(seam, checker);
  check_rendezvous(seam, checker);
  check_bits(seam, checker);
  check_time(seam, checker);
}

}  // namespace lab::ring
