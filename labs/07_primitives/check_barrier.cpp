#include <fmt/format.h>

#include <algorithm>

#include "07_primitives/cases.h"
#include "lab/calls.h"
#include "lab/collectives.h"

namespace lab::primitives {

namespace {

/// Barriers in a row, each with a rank that comes late.
struct Row {
  int world = 1;
  std::vector<int> late;
  bool rendezvous = false;
};

/// When each rank came and went, by barrier and rank.
struct Times {
  Report report;
  std::vector<std::vector<double>> came, left;
};

std::vector<Row> rows_of(const Checker& checker, int world) {
  std::vector<Row> rows;
  const auto late = [&](uint64_t salt) {
    return static_cast<int>(checker.draw_between(300 * static_cast<uint64_t>(world) + salt, 0, world - 1));
  };
  if (world <= 8) {
    for (int r = 0; r < world; ++r) rows.push_back({world, {r}, r % 2 == 1});
  } else {
    for (const int r : {0, late(1), world - 1}) rows.push_back({world, {r}, r % 2 == 1});
  }
  rows.push_back({world, {late(2), late(3), late(4)}, world % 2 == 0});
  return rows;
}

Times run_row(const Seam& seam, const Checker& checker, const Row& row) {
  forbid_collectives();
  Times times = {{}, std::vector(row.late.size(), std::vector<double>(index(row.world))), {}};
  times.left = times.came;
  times.report =
      run_world({.world = row.world, .seed = checker.seed(), .rendezvous = row.rendezvous}, [&](Rank& rank) {
        const auto r = index(rank.rank());
        for (size_t k = 0; k < row.late.size(); ++k) {
          const auto late_us = static_cast<double>(checker.draw_between(k, 1000, 1999));
          rank.compute(rank.rank() == row.late[k] ? late_us : 1);
          times.came[k][r] = rank.now_us();
          seam.barrier(rank);
          times.left[k][r] = rank.now_us();
        }
      });
  return times;
}

std::optional<Failure> judge_cost(const Row& row, const Report& report) {
  const auto where = fmt::format("barrier on {}", counted(row.world, "rank"));
  const int64_t most = std::ssize(row.late) * row.world * rounds_of(row.world);
  if (messages(report) > most) {
    return Failure{"too many messages",
                   fmt::format("{}, {} in a row: {} messages, expected at most P ceil(log2 P) for each: {}",
                               where, row.late.size(), messages(report), most),
                   "In each of ceil(log2 P) rounds every rank sends one message."};
  }
  int64_t bytes = 0;
  for (int r = 0; r < row.world; ++r) bytes += report.sent_bytes(r);
  if (bytes > 4 * messages(report)) {  // a float as a token does no harm
    return Failure{"too many bytes",
                   fmt::format("{}: {} messages carried {} bytes", where, messages(report), bytes),
                   "That a message came says all there is to say: send an empty one, isend({}, to)."};
  }
  return std::nullopt;
}

std::optional<Failure> judge_row(const Row& row, const Times& times) {
  const Report& report = times.report;
  if (!report.problem.empty()) return std::nullopt;
  const int rounds = rounds_of(row.world);
  const auto computed = std::ranges::count(report.events, Event::Kind::kCompute, &Event::kind);
  if (computed > std::ssize(row.late) * row.world) {
    return Failure{
        "a sleep",
        fmt::format("barrier on {}: {} calls of compute() in it", counted(row.world, "rank"),
                    computed - std::ssize(row.late) * row.world),
        "Waiting for some time is not a barrier: it is wrong on the day on which a rank is later than that, "
        "and wasted on all other days. A rank may leave when it knows that all others have come."};
  }
  if (row.world > 1 && messages(report) == 0) {
    return Failure{"nothing sent", fmt::format("barrier on {} ranks: no rank sent a message", row.world),
                   "Ranks share no memory: that another one has come, a rank can only learn from a message."};
  }
  for (size_t k = 0; k < row.late.size(); ++k) {
    const int late = row.late[k];
    const double last_us = *std::ranges::max_element(times.came[k]),
                 gone_us = *std::ranges::max_element(times.left[k]);
    const auto where = std::ssize(row.late) == 1 ? fmt::format("barrier on {}", counted(row.world, "rank"))
                                                 : fmt::format("barrier {} of {} in a row on {}", k + 1,
                                                               row.late.size(), counted(row.world, "rank"));
    for (int r = 0; r < row.world; ++r) {
      if (times.left[k][index(r)] >= last_us) continue;
      return Failure{
          "left too early",
          fmt::format("{}: rank {} left at {:.6g} us, rank {} came at {:.6g} us", where, r,
                      times.left[k][index(r)], late, last_us),
          "That one rank knows that all have come is half of it: every rank must know it of every other one, "
          "directly or through others. The distances 1, 2, 4, ... must go on up to P - 1."};
    }
    if (gone_us > last_us + rounds + 1e-6) {
      return Failure{
          "too many rounds",
          fmt::format("{}: the last one came at {:.6g} us and all were gone at {:.6g} us: {:.6g} rounds, "
                      "expected at most ceil(log2 {}) = {}",
                      where, last_us, gone_us, gone_us - last_us, row.world, rounds),
          "All to one and back takes 2(P - 1) messages after each other. In the dissemination barrier "
          "everybody sends in every round, to the rank at distance 1, 2, 4, ..."};
    }
  }
  return judge_cost(row, report);
}

}  // namespace

void check_barrier(const Seam& seam, Checker& checker) {
  checker.in_part("barrier");
  const auto judge = [&](const std::vector<int>& worlds) {
    std::vector<Row> rows;
    for (const int world : worlds) {
      const auto more = rows_of(checker, world);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    judge_calls(
        checker, rows, [&](const Row& row) { return run_row(seam, checker, row); }, judge_row);
  };
  judge(checker.worlds({2, 3, 4, 5, 6, 7, 8, 1}));
  judge(checker.fresh_worlds(2, 9, 33));
  checker.proved(
      "barrier: nobody leaves before the last rank comes, and ceil(log2 P) rounds later all are gone");
}

}  // namespace lab::primitives
