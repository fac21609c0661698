#include "08_allreduce/check.h"

#include <fmt/format.h>

#include "08_allreduce/cases.h"
#include "lab/calls.h"
#include "lab/collectives.h"

namespace lab::naive {

namespace {

constexpr double kAlpha = 5, kBeta = 0.01;  // us, us per byte

std::vector<Case> cases_of(const Checker& checker, const std::vector<int>& worlds) {
  std::vector<Case> all;
  for (const int world : worlds) {
    const auto salt = 10 * static_cast<uint64_t>(world);
    all.push_back({world, 12});
    all.push_back({world, 1, true});
    all.push_back({world, 0});
    all.push_back({world, 1000});
    all.push_back({world, static_cast<size_t>(checker.draw_between(salt, 13, 999)), true});
  }
  return all;
}

/// Above 8 ranks, above 4096 floats, more floats than 16 bits can count and more ranks than 7 bits can.
std::vector<Case> fresh_cases(const Checker& checker) {
  auto all = cases_of(checker, checker.fresh_worlds(2, 9, 33));
  const auto drawn = [&](uint64_t salt, int64_t low, int64_t high) {
    return static_cast<size_t>(checker.draw_between(10'000 + salt, low, high));
  };
  all.push_back({checker.worlds({static_cast<int>(drawn(1, 4, 11))})[0], drawn(2, 4097, 9999)});
  all.push_back({checker.worlds({3})[0], drawn(3, 65'537, 70'000)});
  all.push_back({checker.worlds({static_cast<int>(drawn(4, 129, 150))})[0], drawn(5, 1, 9)});
  return all;
}

Left run_case(const Checker& checker, const Case& one, const std::vector<GuardedFloats>& rows,
              Function* function) {
  forbid_collectives();
  Left left = {{}, rows};
  const WorldOptions options = {.world = one.world,
                                .seed = checker.seed(),
                                .rendezvous = one.rendezvous,
                                .latency_us = kAlpha,
                                .us_per_byte = kBeta,
                                .keep_events = one.count == 12 && one.world <= 8};
  left.report = run_world(options, [&](Rank& rank) {
    const auto data = left.rows[index(rank.rank())].floats();
    rank.watch(data);
    function(rank, data);
  });
  return left;
}

/// Both functions: memory, and that something was sent at all.
std::optional<Failure> judge_basics(const std::string& name, const Case& one, const Left& left) {
  const auto what = described(name, one);
  for (int r = 0; r < one.world; ++r) {
    if (const auto damage = left.rows[index(r)].damage(); !damage.empty()) {
      return Failure{
          "wrote outside", fmt::format("{}: rank {} wrote {}", what, r, damage),
          "Memory beyond the buffer belongs to somebody else. Compare your indices with data.size()."};
    }
  }
  int64_t messages = 0;
  for (int r = 0; r < one.world; ++r) messages += left.report.sent_messages(r);
  if (one.world > 1 && one.count > 0 && messages == 0) {
    return Failure{"nothing added", what + ": no rank sent a message",
                   "The buffers are as they were. Let all ranks send theirs to rank 0."};
  }
  return std::nullopt;
}

/// S bytes from each to rank 0 in one message, S back, nothing else, and no time lost.
std::optional<Failure> judge_links(const std::string& name, const Case& one, const Report& report) {
  const auto what = described(name, one);
  const auto S = static_cast<int64_t>(one.count * sizeof(float));
  int64_t total = 0;
  bool is_everybody = one.world > 2 && S > 0;
  for (int from = 0; from < one.world; ++from) {
    total += report.sent_bytes(from);
    for (int to = 0; to < one.world; ++to)
      is_everybody &= from == to || report.bytes[index(from)][index(to)] > 0;
  }
  if (is_everybody) {
    return Failure{
        "everybody to everybody",
        fmt::format("{}: every rank sent to every other one, {} bytes in all; through rank 0 it is "
                    "2(P-1) S = {}",
                    what, total, 2 * (one.world - 1) * S),
        "That is the all-reduce that really is O(P^2): P(P-1) messages of the whole buffer. Let rank 0 "
        "add, once, for all."};
  }
  const auto link = [&](int from, int to) {
    return fmt::format("{}: rank {} sent rank {} {} in {}", what, from, to,
                       counted(report.bytes[index(from)][index(to)], "byte"),
                       counted(report.messages[index(from)][index(to)], "message"));
  };
  for (int from = 1; from < one.world; ++from) {
    for (int to = 1; to < one.world; ++to) {
      if (report.messages[index(from)][index(to)] == 0) continue;
      return Failure{
          "another way", link(from, to),
          "There are better ways than through rank 0, and you will write them in lessons 9 and 10. Here "
          "everything goes through rank 0."};
    }
  }
  for (int r = 1; r < one.world; ++r) {
    for (const auto& [from, to] : {std::pair(r, 0), std::pair(0, r)}) {
      if (report.bytes[index(from)][index(to)] != S) {
        return Failure{"wrong bytes", fmt::format("{}, expected S = {}", link(from, to), counted(S, "byte")),
                       "Each buffer goes to rank 0 once, and the sum comes back once."};
      }
      if (report.messages[index(from)][index(to)] > 1) {
        return Failure{"too many messages", link(from, to) + ", expected one message",
                       "Each buffer goes in one message: every message costs alpha."};
      }
    }
  }
  const double expected = 2 * (one.world - 1) * (kAlpha + static_cast<double>(S) * kBeta);
  if (S > 0 && report.time_us > expected * (1 + 1e-6)) {
    return Failure{
        "time wasted",
        fmt::format("{}: took {:.3f} us on the virtual clock; P - 1 messages in and P - 1 out at rank 0 "
                    "take {:.3f} us",
                    what, report.time_us, expected),
        "Rank 0 should have nothing to wait for but its own port: all others send at once."};
  }
  return std::nullopt;
}

/// The sum on rank 0 is wrong.
Failure wrong_at_root(const CountedBuffers& buffers, const WrongElement& wrong, const std::string& what) {
  const auto counts = wrong.counts;
  bool others_have_it = wrong.world > 1;
  for (int r = 1; r < wrong.world; ++r) others_have_it &= !buffers.first_wrong_of(r);
  if (others_have_it)
    return {"root left out", what + "; the other ranks have the sum",
            "Rank 0 must end with the sum in its own data, too."};
  if (const auto operation = buffers.other_operation(0); !operation.empty()) {
    return {operation + " instead of sum", fmt::format("{}: every element is the {}", what, operation),
            "An all-reduce adds: data[i] += arrived[i], and nothing else."};
  }
  if (wrong.element > 0) {
    return {"tail left out", what + "; elements before it are right",
            "Every element is sent, and every element is added: from 0 to data.size() - 1."};
  }
  if (wrong.has_repeats()) {
    return {"counted twice", what,
            "Rank 0 has its own contribution already: add what comes from the others, each once."};
  }
  if (!counts.empty() && counts[0] == 0) {
    return {"own contribution lost", what,
            "recv writes over what was there. Rank 0 needs a vector of its own for what arrives, and adds it "
            "to data."};
  }
  return {"wrong sum", what,
          "Rank 0 must receive from every other rank, and add each buffer before the next one arrives in its "
          "place."};
}

/// Rank 0 has the sum, another rank does not.
Failure wrong_at_other(const WrongElement& wrong, const std::string& what, const Report& report) {
  if (report.messages[0][index(wrong.rank)] == 0) {
    return {"only the root knows", what + "; rank 0 has the sum",
            "The sum must be on every rank: rank 0 has to send it back, and the others must receive it into "
            "their own "
            "data."};
  }
  if (wrong.element > 0) {
    return {"tail left out", what + "; elements before it are right",
            "All of data is sent back, and received as it is."};
  }
  if (wrong.is_untouched()) {
    return {"not received into data", what + ", although rank 0 sent to it",
            "What comes back must land in data: recv(data, 0), or copy it there. Or did rank 0 send back "
            "what this rank had sent?"};
  }
  if (wrong.has_repeats()) {
    return {"counted twice", what + "; rank 0 has the sum",
            "What comes back from rank 0 is complete: it replaces what a rank has, and is not added to it."};
  }
  return {"sent back too soon", what + "; rank 0 has the sum",
          "Rank 0 sent before it had everybody's contribution. First a loop that receives and adds, and "
          "after it a "
          "loop that sends."};
}

std::optional<Failure> judge_sum(const Case& one, const Left& left) {
  if (!left.report.problem.empty()) return std::nullopt;
  const std::string name = "naive_all_reduce";
  if (auto failure = judge_basics(name, one, left)) return failure;
  const CountedBuffers buffers{left.rows};
  if (const auto wrong = buffers.first_wrong()) {
    const auto what = fmt::format("{}: {}", described(name, one), wrong->text());
    return wrong->rank == 0 ? wrong_at_root(buffers, *wrong, what)
                            : wrong_at_other(*wrong, what, left.report);
  }
  return judge_links(name, one, left.report);
}

/// Who sent how much to whom, as lines for people.
void note_links(Checker& checker, const Report& report) {
  const int world = static_cast<int>(report.bytes.size());
  std::string head = "bytes sent ";
  for (int to = 0; to < world; ++to) head += fmt::format("{:>9}", fmt::format("to {}", to));
  checker.note(head);
  for (int from = 0; from < world; ++from) {
    std::string line = fmt::format("    from {} ", from);
    for (int to = 0; to < world; ++to)
      line += fmt::format("{:>9}", from == to ? "" : std::to_string(report.bytes[index(from)][index(to)]));
    checker.note(line);
  }
}

/// An all-reduce is called in every step of a training.
void expect_nothing_kept(Checker& checker, const std::string& name, Function* function) {
  const Case one = {checker.worlds({3})[0], 1000};
  const auto rows = CountedBuffers::make(one.world, one.count).rows;
  const int64_t kept =
      checker.in_child([&] { return kept_bytes([&] { run_case(checker, one, rows, function); }); });
  checker.expect(kept < 8 * 1000, "memory kept",
                 fmt::format("{}: 8 calls left {} bytes more on the heap", described(name, one), kept),
                 "Something grows with every call: a static or global list, or memory that is never freed.");
}

void check_sums(const Seam& seam, Checker& checker) {
  checker.in_part("naive_all_reduce");
  Report links, shown;
  const auto run = [&](const Case& one) {
    return run_case(checker, one, CountedBuffers::make(one.world, one.count).rows, seam.naive_all_reduce);
  };
  const auto judge = [&](const Case& one, const Left& left) {
    if (one.world == checker.worlds({4})[0] && one.count == 12) shown = left.report;
    if (one.world == 4 && one.count == 1000) links = left.report;
    return judge_sum(one, left);
  };
  judge_calls(checker, cases_of(checker, checker.worlds({1, 2, 3, 4, 5, 6, 7, 8})), run, judge);
  if (!links.bytes.empty()) note_links(checker, links);
  if (!shown.events.empty()) checker.show(shown);
  checker.proved("every rank holds every contribution once, for 1 to 8 ranks and empty buffers too");
  judge_calls(checker, fresh_cases(checker), run, judge);
  checker.proved("the same for worlds and sizes drawn from the seed, above 8 ranks and 4096 floats");
  expect_nothing_kept(checker, "naive_all_reduce", seam.naive_all_reduce);
  checker.proved(
      "each link to and from rank 0 carries S bytes in one message, every other link none, at no lost time");
}

/// Contributions with signs and fractions; their sums are exact.
std::vector<GuardedFloats> drawn_rows(const Checker& checker, const Case& one) {
  std::vector<GuardedFloats> rows;
  for (int r = 0; r < one.world; ++r) {
    auto& row = rows.emplace_back(GuardedFloats::make(one.count));
    for (size_t i = 0; i < one.count; ++i)
      row.floats()[i] = static_cast<float>(checker.draw_between(index(r) << 32 | i, -2000, 6000)) / 16;
  }
  return rows;
}

std::optional<Failure> judge_mean(const std::vector<GuardedFloats>& before, const Case& one,
                                  const Left& left) {
  if (!left.report.problem.empty()) return std::nullopt;
  const std::string name = "all_reduce_mean";
  if (auto failure = judge_basics(name, one, left)) return failure;
  std::vector<double> sum(one.count), most(one.count);
  for (const auto& row : before) {
    for (size_t i = 0; i < one.count; ++i) {
      sum[i] += static_cast<double>(row.floats()[i]);
      most[i] += std::abs(static_cast<double>(row.floats()[i]));
    }
  }
  for (int r = 0; r < one.world; ++r) {
    const auto row = left.rows[index(r)].floats();
    const auto is = [&](size_t i, double x) {
      return std::abs(static_cast<double>(row[i]) - x) <= 1e-5 * most[i] / one.world;
    };
    // What every element of this rank is.
    const auto all_are = [&](auto x) {
      for (size_t i = 0; i < one.count; ++i) {
        if (!is(i, x(i))) return false;
      }
      return true;
    };
    size_t i = 0;
    while (i < one.count && is(i, sum[i] / one.world)) ++i;
    if (i == one.count) continue;
    const auto what = fmt::format("{}: rank {}, element {} is {:.6g}, expected {:.6g} / {} = {:.6g}",
                                  described(name, one), r, i, row[i], sum[i], one.world, sum[i] / one.world);
    if (all_are([&](size_t k) { return sum[k]; })) {
      return Failure{
          "not divided", what + ": that is the sum",
          "The mean is the sum over the number of ranks, on every rank. With the sum in its place a step of "
          "training is P times too long."};
    }
    if (all_are([&](size_t k) { return sum[k] / one.world / one.world; })) {
      return Failure{
          "divided twice", what,
          "Somebody divided on the way, and everybody at the end. Once is enough: before the sum is sent "
          "back, or after."};
    }
    const double ratio = sum[i] / static_cast<double>(row[i]);
    if (one.count > 1 && all_are([&](size_t k) { return sum[k] / ratio; })) {
      return Failure{"divided by another number",
                     fmt::format("{}: every element is the sum / {:.6g}", what, ratio),
                     "Divide by rank.world_size(), whatever it is."};
    }
    if (one.count > 1 && all_are([&](size_t k) { return std::trunc(sum[k] / one.world); })) {
      return Failure{
          "fraction lost", what,
          "Integers were divided, or the quotient became one: static_cast<float>(rank.world_size())."};
    }
    if (i > 0)
      return Failure{"tail left out", what + "; elements before it are right",
                     "Divide every element of data."};
    return Failure{"wrong mean", what, "All-reduce, then divide every element by world_size, on every rank."};
  }
  return judge_links(name, one, left.report);
}

void check_mean(const Seam& seam, Checker& checker) {
  checker.in_part("all_reduce_mean");
  const auto run = [&](const Case& one) {
    return run_case(checker, one, drawn_rows(checker, one), seam.all_reduce_mean);
  };
  const auto judge = [&](const Case& one, const Left& left) {
    return judge_mean(drawn_rows(checker, one), one, left);
  };
  judge_calls(checker, cases_of(checker, checker.worlds({3, 4, 5, 6, 7, 8, 2, 1})), run, judge);
  judge_calls(checker, fresh_cases(checker), run, judge);
  expect_nothing_kept(checker, "all_reduce_mean", seam.all_reduce_mean);
  checker.proved("all_reduce_mean: every rank holds the mean, for the same bytes and time");
}

/// A training's calls, one after the other in one run: sum, mean, sum, each of another size.
void check_in_a_row(const Seam& seam, Checker& checker) {
  checker.in_part("");
  const int world = checker.worlds({static_cast<int>(checker.draw_between(81, 3, 6))})[0];
  checker.in_world(world);
  Function* const functions[] = {seam.naive_all_reduce, seam.all_reduce_mean, seam.naive_all_reduce};
  std::vector<std::vector<GuardedFloats>> before;
  for (uint64_t k = 0; k < std::size(functions); ++k)
    before.push_back(drawn_rows(checker, {world, static_cast<size_t>(checker.draw_between(82 + k, 2, 40))}));
  const auto [report, after] = checker.in_child([&] {
    forbid_collectives();
    auto data = before;
    auto run = run_world({.world = world, .seed = checker.seed()}, [&](Rank& rank) {
      for (size_t k = 0; k < data.size(); ++k) functions[k](rank, data[k][index(rank.rank())].floats());
    });
    return std::pair(std::move(run), std::move(data));
  });
  const auto where = fmt::format("naive_all_reduce, all_reduce_mean and naive_all_reduce in a row on {}",
                                 counted(world, "rank"));
  const char* const meaning =
      "Each call is right alone, but not after the others. Does your code keep something from one call to "
      "the next, "
      "such as a static buffer? Does one call receive a message of another one?";
  checker.expect(report.problem.empty(), report.problem, where + ": " + report.what, meaning);
  for (size_t k = 0; k < after.size(); ++k) {
    for (size_t i = 0; i < after[k][0].floats().size(); ++i) {
      double sum = 0;
      for (const auto& row : before[k]) sum += static_cast<double>(row.floats()[i]);
      const double expected = k == 1 ? sum / world : sum;
      for (int r = 0; r < world; ++r) {
        const auto found = static_cast<double>(after[k][index(r)].floats()[i]);
        checker.expect(std::abs(found - expected) <= 0.01, "wrong in a row",
                       fmt::format("{}: call {}, rank {}, element {} is {:.6g}, expected {:.6g}", where,
                                   k + 1, r, i, found, expected),
                       meaning);
      }
    }
  }
}

}  // namespace

std::string described(const std::string& name, const Case& one) {
  return fmt::format("{} of {} on {}", name, counted(static_cast<int64_t>(one.count), "float"),
                     counted(one.world, "rank"));
}

void check(const Seam& seam, Checker& checker) {
  check_sums(seam, checker);
  check_mean(seam, checker);
  check_in_a_row(seam, checker);
  check_formula(seam, checker);
}

}  // namespace lab::naive
