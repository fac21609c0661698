#include "10_choosing/check.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "lab/sums.h"

namespace lab::choosing {

namespace {

size_t index(int rank) {
  return static_cast<size_t>(rank);
}

int core_of(int world) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(world)));
}

bool is_power(int world) {
  return core_of(world) == world;
}

/// 2 log2 of the core, and two more for the extra ranks.
int rounds_of(int world) {
  const int log_core = static_cast<int>(std::bit_width(static_cast<unsigned>(world))) - 1;
  return 2 * log_core + (is_power(world) ? 0 : 2);
}

/// A sentence about the extra ranks, for worlds that have some.
std::string extras(int world) {
  const int core = core_of(world);
  return fmt::format(
      "{} is no power of two: {} ranks work in pairs, and rank {} must get its data in through rank {} "
      "before "
      "that, and the result from it afterwards.",
      world, core, core, 0);
}

/// Who knows powers of two alone meets ranks that are not there; the world's own words for that would not
/// help.
void expect_partners(const Seam& seam, Checker& checker, int world) {
  auto buffers = CountedBuffers::make(world, 12);
  const auto report = run_world({.world = world, .seed = checker.seed()}, [&](Rank& rank) {
    seam.halving_doubling_all_reduce(rank, buffers.of(rank.rank()));
  });
  checker.in_world(world);
  checker.expect(report.problem != "wrong rank" && report.problem != "exception", "not a power of two",
                 report.what, extras(world));
}

void check_sums(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({1, 2, 4, 8, 3, 5, 6, 7})) {
    if (!is_power(world)) expect_partners(seam, checker, world);
    const size_t n = index(world);
    for (const size_t count : {3 * n, size_t{1000}, n + 1, size_t{1}, size_t{0}}) {
      auto buffers = CountedBuffers::make(world, count);
      auto report = checker.run({.world = world}, [&](Rank& rank) {
        rank.watch(buffers.of(rank.rank()));
        seam.halving_doubling_all_reduce(rank, buffers.of(rank.rank()));
      });
      bool is_silent = world > 1;
      for (int r = 0; r < world; ++r) is_silent &= report.sent_messages(r) == 0;
      if (count == 12 && world == 4) checker.show(std::move(report));
      const auto wrong = buffers.first_wrong();
      if (!wrong) continue;
      if (is_silent) {
        checker.fail(
            "nothing added", wrong->text(),
            "No rank sent a message: the buffers are as they were. Begin with the halving, for a world "
            "that is a power of two.");
      }
      if (!is_power(world)) checker.fail("not a power of two", wrong->text(), extras(world));
      if (wrong->has_repeats()) {
        checker.fail(
            "counted twice", wrong->text(),
            "A contribution was added more than once. In the second half complete blocks replace; and in the "
            "first, partners must add different blocks.");
      }
      checker.fail(
          "wrong sum", wrong->text(),
          "Follow one block: which rank keeps it in which step? At distance d rank r keeps the d blocks from "
          "r / d * d on.");
    }
  }
  checker.proved("every rank holds every contribution once, powers of two or not");
}

void check_rounds_and_bytes(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 4, 8, 3, 5, 6, 7})) {
    const int core = core_of(world);
    const size_t count = 840;  // divides by all of these worlds
    const auto S = static_cast<int64_t>(count * sizeof(float));
    std::vector<std::vector<float>> data(index(world), std::vector<float>(count, 1));
    const auto report = checker.run({.world = world}, [&](Rank& rank) {
      seam.halving_doubling_all_reduce(rank, data[index(rank.rank())]);
    });
    for (int r = 0; r < world; ++r) {
      const bool has_extra = r < core && r + core < world;
      const int64_t most = r >= core ? S : 2 * (core - 1) * S / core + (has_extra ? S : 0);
      checker.expect(
          report.sent_bytes(r) <= most, "whole buffers sent",
          fmt::format(
              "rank {} of {} sent {} bytes of a buffer of {}; halves of halves are 2(core-1)/core S{} "
              "= {}",
              r, world, report.sent_bytes(r), S, has_extra ? " + S for the extra rank" : "", most),
          "In each step of the first half you need to send only what the partner keeps: half of what both "
          "still work on. Exchanging everything is recursive doubling, which is good for short buffers.");
    }
    checker.expect(
        report.time_us <= rounds_of(world) + 1e-9, "too many rounds",
        fmt::format("{} ranks took {} rounds, expected {}", world, report.time_us, rounds_of(world)),
        "Send and receive at once: start the send, receive, then wait for the send. And there are log2 core "
        "steps in each half, with two more for extra ranks.");
  }
  checker.proved("2 log2 P rounds and 2(P-1)/P S bytes a rank; two rounds more if P is no power of two");
}

void check_rendezvous(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 3, 4, 5, 8})) {
    std::vector<std::vector<float>> data(index(world), std::vector<float>(100, 1));
    checker.run({.world = world, .rendezvous = true},
                [&](Rank& rank) { seam.halving_doubling_all_reduce(rank, data[index(rank.rank())]); });
  }
  checker.proved("nobody waits for ever, even if a send waits for its receive");
}

void check_bits(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({4, 5, 8})) {
    std::vector<std::vector<float>> data(index(world));
    for (int r = 0; r < world; ++r) {
      for (uint64_t i = 0; i < 101; ++i)
        data[index(r)].push_back(static_cast<float>(checker.draw(i * 64 + index(r)) >> 40) / 1e3F);
    }
    checker.run({.world = world},
                [&](Rank& rank) { seam.halving_doubling_all_reduce(rank, data[index(rank.rank())]); });
    for (int r = 1; r < world; ++r) {
      for (size_t i = 0; i < data[0].size(); ++i) {
        const float first = data[0][i], other = data[index(r)][i];
        checker.expect(std::memcmp(&first, &other, sizeof first) == 0, "different bits",
                       fmt::format("{} ranks: element {} is {:.9g} on rank 0 and {:.9g} on rank {}", world, i,
                                   first, other, r),
                       "Floating-point sums depend on their order. Add each block on one rank, and pass the "
                       "result on as "
                       "it is.");
      }
    }
  }
  checker.proved("all ranks hold the same bits");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_sums(seam, checker);
  check_rendezvous(seam, checker);
  check_rounds_and_bytes(seam, checker);
  check_bits(seam, checker);
  check_choice(seam, checker);
}

}  // namespace lab::choosing
