#include "10_choosing/check.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "lab/collectives.h"
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
      "{} is not a power of two: {} ranks work in pairs. Each of the others hands in its data before that "
      "and "
      "gets the result afterwards, rank {} for example through rank 0.",
      world, core, core);
}

/// What a run left.
struct Case {
  size_t count = 0;
  CountedBuffers buffers;
  Report report;
};

void expect_sums(Checker& checker, int world, const Case& one) {
  const auto& problem = one.report.problem;
  const bool is_extra = !is_power(world);
  // Who knows powers of two alone meets ranks that do not exist; the world's own words would not help.
  checker.expect(!is_extra || (problem != "wrong rank" && problem != "exception"), "not a power of two",
                 one.report.what, extras(world));
  checker.expect_no_problem(one.report);
  checker.expect(one.buffers.damage().empty(), "wrote outside",
                 fmt::format("{} (of {}, {})", one.buffers.damage(),
                             counted(static_cast<int64_t>(one.count), "float"), counted(world, "rank")),
                 "Memory beyond the buffer belongs to somebody else. Where does your last block end?");
  const auto wrong = one.buffers.first_wrong();
  if (!wrong) return;
  bool is_silent = world > 1;
  for (int r = 0; r < world; ++r) is_silent &= one.report.sent_messages(r) == 0;
  if (is_silent) {
    checker.fail("nothing added", wrong->text(),
                 fmt::format("No rank of {} sent a message: the buffers are as they were. Begin with the "
                             "halving, for a world that is a power of two.",
                             world));
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
  if (is_extra) checker.fail("not a power of two", wrong->text(), extras(world));
  if (wrong->has_repeats()) {
    checker.fail(
        "counted twice", wrong->text(),
        "A contribution was added more than once. In the second half complete blocks replace; and in "
        "the first, partners must add different blocks.");
  }
  checker.fail("wrong sum", wrong->text(),
               "Follow one block: which rank keeps it in which step? At distance d rank r keeps the d blocks "
               "from r / d * d on.");
}

/// Runs the sizes one after the other in one process, as a training does.
void check_sums_of(const Seam& seam, Checker& checker, int world, const std::vector<size_t>& counts) {
  checker.in_world(world);
  const auto cases = checker.in_child([&] {
    std::vector<Case> all;
    for (const size_t count : counts) {
      auto& one = all.emplace_back(Case{count, CountedBuffers::make(world, count), {}});
      const bool is_shown = world == 4 && count == 12;
      one.report =
          run_world({.world = world, .seed = checker.seed(), .keep_events = is_shown}, [&](Rank& rank) {
            rank.watch(one.buffers.of(rank.rank()));
            seam.halving_doubling_all_reduce(rank, one.buffers.of(rank.rank()));
          });
      if (!one.report.problem.empty()) break;
    }
    return all;
  });
  for (const auto& one : cases) {
    if (!one.report.events.empty()) checker.show(one.report);
    expect_sums(checker, world, one);
  }
}

void check_sums(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({1, 2, 4, 8, 3, 5, 6, 7})) {
    const size_t n = index(world);
    check_sums_of(seam, checker, world, {3 * n, 1000, n + 1, 1, 0});
  }
  for (const int world : checker.fresh_worlds(3, 9, 40)) {
    const auto salt = static_cast<uint64_t>(world);
    check_sums_of(seam, checker, world,
                  {static_cast<size_t>(checker.draw_between(salt, 4097, 9999)),
                   static_cast<size_t>(checker.draw_between(salt + 1, 1, 2 * world))});
  }
  checker.proved("every rank holds every contribution once, powers of two or not");
}

/// Runs `data` on as many ranks, in a child.
struct Run {
  Report report;
  std::vector<std::vector<float>> data;  ///< By rank.
};
Run run(const Seam& seam, Checker& checker, const WorldOptions& options, Run run) {
  checker.in_world(options.world);
  return checker.in_child([&] {
    run.report = checker.run(
        options, [&](Rank& rank) { seam.halving_doubling_all_reduce(rank, run.data[index(rank.rank())]); });
    return run;
  });
}
Run ones(int world, size_t count) {
  return {{}, std::vector<std::vector<float>>(index(world), std::vector<float>(count, 1))};
}

/// Halves of halves: no rank sends more than 2 (core - 1) blocks, and the whole buffer once for an extra
/// rank.
void check_cost_of(const Seam& seam, Checker& checker, int world, size_t count) {
  const auto report = run(seam, checker, {.world = world, .keep_events = false}, ones(world, count)).report;
  const int core = core_of(world);
  const auto S = static_cast<int64_t>(count * sizeof(float));
  const int64_t halves = 2 * (core - 1) * 4 * static_cast<int64_t>((count + index(core) - 1) / index(core));
  int64_t all = 0;
  for (int r = 0; r < world; ++r) {
    const int64_t most = halves + (is_power(world) ? 0 : S);
    all += report.sent_bytes(r);
    checker.expect(
        report.sent_bytes(r) <= most, "whole buffers sent",
        fmt::format("rank {} of {} sent {} bytes of a buffer of {}; halves of halves are 2(core-1)/core S{} "
                    "= {}",
                    r, world, report.sent_bytes(r), S, is_power(world) ? "" : " + S for an extra rank", most),
        "In each step of the first half you need to send only what the partner keeps: half of what both "
        "still work on. Exchanging everything is recursive doubling, which is good for short buffers.");
  }
  const int64_t most = core * halves + 2 * (world - core) * S;
  checker.expect(all <= most, "too many bytes",
                 fmt::format("{} ranks sent {} bytes in all, {} floats each; expected at most {}", world, all,
                             count, most),
                 "The core's ranks send 2(core-1)/core S each, and each extra rank costs its buffer in and "
                 "out: 2 S. Does somebody send what nobody needs?");
  checker.expect(report.time_us <= rounds_of(world) + 1e-9, "too many rounds",
                 fmt::format("{} ranks, {} floats: {:.0f} rounds, expected {}", world, count, report.time_us,
                             rounds_of(world)),
                 "Send and receive at once: start the send, receive, then wait for the send. And there are "
                 "log2 core steps in each half, with two more for extra ranks.");
}

void check_cost(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 4, 8, 3, 5, 6, 7})) check_cost_of(seam, checker, world, 840);
  for (const int world : checker.fresh_worlds(2, 9, 40)) {
    const auto salt = 50 + static_cast<uint64_t>(world);
    check_cost_of(seam, checker, world, static_cast<size_t>(checker.draw_between(salt, 2 * world, 499)));
    check_cost_of(seam, checker, world, static_cast<size_t>(checker.draw_between(salt + 2, 2, 2 * world)));
    check_cost_of(seam, checker, world, static_cast<size_t>(checker.draw_between(salt + 1, 4097, 9999)));
  }
  checker.proved("2 log2 P rounds and 2(P-1)/P S bytes a rank; two rounds more if P is not a power of two");
}

void check_rendezvous(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 3, 4, 5, 8}))
    run(seam, checker, {.world = world, .rendezvous = true}, ones(world, 100));
  for (const int world : checker.fresh_worlds(1, 9, 20)) {
    const auto count = static_cast<size_t>(checker.draw_between(70, 1, 5000));
    run(seam, checker, {.world = world, .rendezvous = true}, ones(world, count));
  }
  checker.proved("nobody waits for ever, even if a send waits for its receive");
}

/// The same bits on all ranks: replicas must not drift apart.
void check_bits(const Seam& seam, Checker& checker) {
  std::vector<int> worlds = checker.worlds({4, 5, 8});
  worlds.push_back(checker.fresh_worlds(1, 9, 20).back());
  for (const int world : worlds) {
    Run values;
    for (int r = 0; r < world; ++r) {
      auto& row = values.data.emplace_back();
      for (uint64_t i = 0; i < 101; ++i)
        row.push_back(static_cast<float>(checker.draw(i * 64 + index(r)) >> 40) / 1e3F);
    }
    const auto data = run(seam, checker, {.world = world}, values).data;
    expect_exact(checker, values.data, data[0]);
    for (int r = 1; r < world; ++r) {
      for (size_t i = 0; i < data[0].size(); ++i) {
        const float first = data[0][i], other = data[index(r)][i];
        checker.expect(std::memcmp(&first, &other, sizeof first) == 0, "different bits",
                       fmt::format("{} ranks: element {} is {:.9g} on rank 0 and {:.9g} on rank {}", world, i,
                                   first, other, r),
                       "Floating-point sums depend on their order. Add each block on one rank, and pass the "
                       "result on as it is.");
      }
    }
  }
  checker.proved("all ranks hold the same bits");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  forbid_collectives();
  check_sums(seam, checker);
  check_rendezvous(seam, checker);
  check_cost(seam, checker);
  check_bits(seam, checker);
  check_choice(seam, checker);
}

}  // namespace lab::choosing
