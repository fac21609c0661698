#include "08_allreduce/check.h"

#include <fmt/format.h>

#include <cmath>

#include "lab/sums.h"

namespace lab::naive {

namespace {

size_t index(int rank) {
  return static_cast<size_t>(rank);
}

int64_t all_messages(const Report& report) {
  int64_t sum = 0;
  for (int r = 0; r < static_cast<int>(report.bytes.size()); ++r) sum += report.sent_messages(r);
  return sum;
}

void check_sums(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({1, 2, 3, 4, 5, 8})) {
    for (const size_t count : {size_t{12}, size_t{1}, size_t{1000}, size_t{0}}) {
      auto buffers = CountedBuffers::make(world, count);
      auto report = checker.run({.world = world, .rendezvous = count == 1}, [&](Rank& rank) {
        rank.watch(buffers.of(rank.rank()));
        seam.naive_all_reduce(rank, buffers.of(rank.rank()));
      });
      const auto messages = all_messages(report);
      const auto from_root = report.bytes[0];
      if (count == 12 && (world == 4 || checker.result().shown_world == 0)) checker.show(std::move(report));
      const auto wrong = buffers.first_wrong();
      if (!wrong) continue;
      if (messages == 0) {
        checker.fail("nothing added", wrong->text(),
                     "No rank sent a message: the buffers are as they were. Let all ranks send theirs to "
                     "rank 0.");
      }
      if (wrong->rank != 0 && from_root[index(wrong->rank)] > 0 && !wrong->is_untouched()) {
        checker.fail(
            "sent back too soon", wrong->text() + "; rank 0 has the sum",
            "Rank 0 sent before it had everybody's contribution. First a loop that receives and adds, "
            "and after it a loop that sends.");
      }
      if (wrong->rank != 0) {
        checker.fail("only the root knows", wrong->text() + "; rank 0 has the sum",
                     "The sum must be on every rank: rank 0 has to send it back, and the others must receive "
                     "it into their own data.");
      }
      if (wrong->has_repeats()) {
        checker.fail("counted twice", wrong->text(),
                     "Rank 0 has its own contribution already: add what comes from the others, each once.");
      }
      checker.fail("wrong sum", wrong->text(),
                   "Rank 0 must receive from every other rank, and add each buffer before the next one "
                   "arrives in its place.");
    }
  }
  checker.proved("every rank holds every contribution once, for 1 to 8 ranks and empty buffers too");
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
      line +=
          from == to ? fmt::format("{:>9}", "") : fmt::format("{:>9}", report.bytes[index(from)][index(to)]);
    checker.note(line);
  }
}

/// S from each to rank 0, S back, nothing else.
void check_links(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({4, 3, 5, 8, 2})) {
    const size_t count = 1000;
    const auto S = static_cast<int64_t>(count * sizeof(float));
    std::vector<std::vector<float>> data(index(world), std::vector<float>(count, 1));
    const auto report = checker.run(
        {.world = world}, [&](Rank& rank) { seam.naive_all_reduce(rank, data[index(rank.rank())]); });
    if (world == 4) note_links(checker, report);
    int64_t total = 0;
    bool is_everybody = world > 2;
    for (int from = 0; from < world; ++from) {
      total += report.sent_bytes(from);
      for (int to = 0; to < world; ++to)
        is_everybody &= from == to || report.bytes[index(from)][index(to)] > 0;
    }
    checker.expect(!is_everybody, "everybody to everybody",
                   fmt::format("{} ranks of {} bytes each: every rank sent to every other one, {} bytes in "
                               "all; through rank 0 it is 2(P-1) S = {}",
                               world, S, total, 2 * (world - 1) * S),
                   "That is the all-reduce that really is O(P^2): P(P-1) messages of the whole buffer. Let "
                   "rank 0 add, once, for all.");
    for (int from = 0; from < world; ++from) {
      for (int to = 0; to < world; ++to) {
        if (from == to) continue;
        const auto bytes = report.bytes[index(from)][index(to)];
        checker.expect(from == 0 || to == 0 || bytes == 0, "another way",
                       fmt::format("rank {} of {} sent {} bytes to rank {}", from, world, bytes, to),
                       "There are better ways than through rank 0, and you will write them in lessons 9 and "
                       "10. Here everything goes through rank 0.");
        if (from != 0 && to != 0) continue;
        checker.expect(bytes == S, "wrong bytes",
                       fmt::format("the link from rank {} to rank {} of {} carried {} bytes, expected S = {}",
                                   from, to, world, bytes, S),
                       "Each buffer goes to rank 0 once, and the sum comes back once.");
      }
    }
  }
  checker.proved("each link to and from rank 0 carries S bytes, every other link none: 2(P-1) S in all");
}

void check_mean(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({1, 2, 3, 4, 5, 8})) {
    const size_t count = 10;
    std::vector<std::vector<float>> data(index(world));
    std::vector<double> sum(count);
    for (int r = 0; r < world; ++r) {
      for (size_t i = 0; i < count; ++i) {
        data[index(r)].push_back(static_cast<float>(world * (100 * r + static_cast<int>(i) + 1)) / 2);
        sum[i] += static_cast<double>(data[index(r)].back());
      }
    }
    checker.run({.world = world}, [&](Rank& rank) { seam.all_reduce_mean(rank, data[index(rank.rank())]); });
    for (int r = 0; r < world; ++r) {
      for (size_t i = 0; i < count; ++i) {
        const auto found = static_cast<double>(data[index(r)][i]);
        const double mean = sum[i] / world;
        const auto is = [&](double x) { return std::abs(found - x) <= 1e-6 * std::abs(x); };
        if (is(mean)) continue;
        const auto what =
            fmt::format("all_reduce_mean on {} ranks: rank {}, element {} is {}, expected {} / {} = {}",
                        world, r, i, found, sum[i], world, mean);
        if (is(sum[i])) {
          checker.fail("not divided", what + ": that is the sum",
                       "The mean is the sum over the number of ranks. With the sum in its place a step of "
                       "training is P times too long.");
        }
        if (is(mean / world)) {
          checker.fail(
              "divided twice", what,
              "Somebody divided on the way, and everybody at the end. Once is enough: before the sum is sent "
              "back, or after.");
        }
        checker.fail("wrong mean", what,
                     "All-reduce, then divide every element by world_size, on every rank.");
      }
    }
  }
  checker.proved("all_reduce_mean: every rank holds the mean");
}

void check_formula(const Seam& seam, Checker& checker) {
  const std::vector<std::pair<double, double>> networks = {{5, 0.01}, {100, 0.001}, {0.5, 2}};
  for (const int world : checker.worlds({3, 4, 5, 8, 2, 1})) {  // on 2 ranks wrong formulas agree
    for (const size_t count :
         {size_t{256}, size_t{1}, 100 + static_cast<size_t>(checker.draw(index(world)) % 1000)}) {
      for (const auto& [alpha, beta] : networks) {
        std::vector<std::vector<float>> data(index(world), std::vector<float>(count, 1));
        const auto report =
            checker.run({.world = world, .latency_us = alpha, .us_per_byte = beta, .keep_events = false},
                        [&](Rank& rank) { seam.naive_all_reduce(rank, data[index(rank.rank())]); });
        const auto S = static_cast<int64_t>(count * sizeof(float));
        const auto bytes = static_cast<double>(S);
        const double expected = 2 * (world - 1) * (alpha + bytes * beta);
        const auto same = [](double a, double b) {
          return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
        };
        checker.expect(
            same(report.time_us, expected), "time wasted",
            fmt::format("naive_all_reduce of {} bytes on {} ranks took {:.3f} us on the virtual clock; "
                        "P - 1 messages in and P - 1 out at rank 0 take {:.3f} us",
                        S, world, report.time_us, expected),
            "Rank 0 should have nothing to wait for but its own port: all others send at once.");
        const double told = seam.naive_all_reduce_us(world, S, alpha, beta);
        if (count == 256 && alpha == 5 && world > 1) {
          checker.note(fmt::format(
              "{} ranks, 1 KiB, alpha 5 us, beta 0.01 us/byte: clock {:.2f} us, your formula {:.2f} us",
              world, report.time_us, told));
        }
        if (same(told, expected)) continue;
        const auto what = fmt::format(
            "{} ranks, {} bytes, alpha {} us, beta {} us/byte: the clock says {:.3f} us, "
            "naive_all_reduce_us {:.3f} us",
            world, S, alpha, beta, report.time_us, told);
        if (same(told, expected / 2)) {
          checker.fail("way back forgotten", what,
                       "That is half of it: the buffers' way to rank 0. The sum has to come back.");
        }
        if (same(told, 2 * (world - 1) * (alpha + bytes / world * beta))) {
          checker.fail(
              "formula of a ring", what,
              "S / P bytes in a message is what a ring sends. Here every message is the whole buffer, and "
              "all of them pass the port of rank 0.");
        }
        if (same(told, 2 * (world - 1) * bytes * beta)) {
          checker.fail("latency forgotten", what, "Every message costs alpha, however short it is.");
        }
        if (same(told, 2 * (alpha + bytes * beta))) {
          checker.fail(
              "one port forgotten", what,
              "The messages to rank 0 do not arrive at the same time: its port takes one after the other, "
              "P - 1 of them, and sends one after the other.");
        }
        if (same(told, 2 * (world - 1) * alpha + bytes * beta) ||
            same(told, 2 * (world - 1) * alpha + 2 * bytes * beta)) {
          checker.fail(
              "one port forgotten", what,
              "You count the latency of all messages, but not all bytes: each of the 2(P - 1) messages "
              "is the whole buffer, and all of them pass the port of rank 0.");
        }
        if (same(told, 2 * world * (alpha + bytes * beta))) {
          checker.fail("root counted too", what, "Rank 0 sends nothing to itself: P - 1 messages each way.");
        }
        checker.fail(
            "wrong formula", what,
            "Count the messages that pass the port of rank 0, one after the other, and multiply by what one "
            "of them takes.");
      }
    }
  }
  checker.proved("your formula is what the virtual clock says, for 1 to 8 ranks on three networks");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_sums(seam, checker);
  check_links(seam, checker);
  check_mean(seam, checker);
  check_formula(seam, checker);
}

}  // namespace lab::naive
