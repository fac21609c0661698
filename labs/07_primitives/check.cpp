#include "07_primitives/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <set>

#include "lab/sums.h"

namespace lab::primitives {

namespace {

constexpr float kUntouched = -1;

size_t index(int rank) {
  return static_cast<size_t>(rank);
}

/// ceil(log2 P)
int rounds_of(int world) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(world - 1)));
}

/// The first, the last, and one between.
std::set<int> roots(int world) {
  return {0, world - 1, world / 2};
}

/// Rank r's element i; one of its own for every rank and element.
float value(int rank, size_t i) {
  return static_cast<float>(4096 * (rank + 1) + static_cast<int>(i));
}

/// The rank whose value that is.
int owner(float found) {
  return static_cast<int>(found) / 4096 - 1;
}

std::vector<float> values(int rank, size_t count) {
  std::vector<float> row(count);
  for (size_t i = 0; i < count; ++i) row[i] = value(rank, i);
  return row;
}

int64_t messages(const Report& report) {
  int64_t sum = 0;
  for (int r = 0; r < static_cast<int>(report.bytes.size()); ++r) sum += report.sent_messages(r);
  return sum;
}

void expect_some(Checker& checker, const Report& report, const std::string& name) {
  const auto world = report.bytes.size();
  checker.expect(world == 1 || messages(report) > 0, "nothing sent",
                 fmt::format("{} on {} ranks: no rank sent a message", name, world),
                 "Ranks share no memory: what one of them knows, another one can only learn from a message.");
}

/// With a latency of 1 and free bytes the virtual clock counts rounds.
void expect_rounds(Checker& checker, const Report& report, const std::string& name, int root) {
  const int world = static_cast<int>(report.bytes.size());
  checker.expect(
      report.time_us <= rounds_of(world) + 1e-9, "too many rounds",
      fmt::format("{} from or to rank {} on {} ranks took {} rounds, expected at most ceil(log2 {}) = {}",
                  name, root, world, report.time_us, world, rounds_of(world)),
      "One rank sends, or receives, one message at a time. Let everybody help: in each round twice as many "
      "ranks as before take part.");
}

/// Trees have branches that would end outside of the world; the world's own words for that would not help.
void expect_inside(Checker& checker, int world, const std::string& name,
                   const std::function<void(Rank&, std::span<float>)>& collective) {
  std::vector<std::vector<float>> data(index(world), std::vector<float>(3));
  const auto report = run_world({.world = world, .seed = checker.seed()},
                                [&](Rank& rank) { collective(rank, data[index(rank.rank())]); });
  checker.in_world(world);
  checker.expect(
      report.problem != "wrong rank", "nobody there", fmt::format("{}: {}", name, report.what),
      "A rank may have no partner at some distance: then it has nothing to do in that round. Counted from "
      "the root, me + distance must be below P. Add the root only then, and take the remainder.");
}

/// Every rank of `data` holds the root's values.
void expect_copies(Checker& checker, const std::vector<std::vector<float>>& data, int root) {
  const int world = static_cast<int>(data.size());
  const auto where = [&](int r, size_t i) {
    return fmt::format("broadcast from rank {} of {}: rank {}, element {}", root, world, r, i);
  };
  // Somebody else's data first: with a tree from another rank some hold what they had, which says less.
  for (int r = 0; r < world; ++r) {
    for (size_t i = 0; i < data[0].size(); ++i) {
      const float found = data[index(r)][i];
      const int whose = owner(found);
      if (whose < 0 || whose >= world || whose == root || whose == r || found != value(whose, i)) continue;
      checker.fail("root ignored", fmt::format("{} holds rank {}'s data", where(r, i), whose),
                   "The tree must grow from the root. Count ranks from it, me = (rank - root + P) % P, and "
                   "add it again for the peer.");
    }
  }
  for (int r = 0; r < world; ++r) {
    for (size_t i = 0; i < data[0].size(); ++i) {
      const float found = data[index(r)][i];
      if (found == value(root, i)) continue;
      if (found == value(r, i)) {
        checker.fail("left out", where(r, i) + " is as it was",
                     "This rank was never sent the data, or not all of it. Draw the tree for this world: who "
                     "sends to this rank, and in which round? Worlds that are no power of two have a tree "
                     "with branches cut off.");
      }
      checker.fail("wrong data", fmt::format("{} is {}, expected {}", where(r, i), found, value(root, i)),
                   "A broadcast copies: nothing is added, and every element keeps its place.");
    }
  }
}

void check_broadcast(const Seam& seam, Checker& checker) {
  checker.in_part("broadcast");
  std::string table;
  for (const int world : checker.worlds({1, 2, 3, 4, 5, 8})) {
    for (const int root : roots(world)) {
      expect_inside(checker, world, fmt::format("broadcast from rank {}", root),
                    [&](Rank& rank, std::span<float> data) { seam.broadcast(rank, data, root); });
    }
    for (const size_t count : {size_t{12}, size_t{1}, size_t{1000}, size_t{0}}) {
      for (const int root : roots(world)) {
        std::vector<std::vector<float>> data;
        for (int r = 0; r < world; ++r) data.push_back(values(r, count));
        auto report = checker.run({.world = world, .rendezvous = count == 1}, [&](Rank& rank) {
          rank.watch(data[index(rank.rank())]);
          seam.broadcast(rank, data[index(rank.rank())], root);
        });
        if (count > 0) expect_some(checker, report, fmt::format("broadcast from rank {}", root));
        expect_copies(checker, data, root);
        expect_rounds(checker, report, "broadcast", root);
        if (count == 12 && root == 0) {
          table += fmt::format("{}{} on {}", table.empty() ? "" : ", ", report.time_us, world);
          if (world == 8 || checker.result().shown_world == 0) checker.show(std::move(report));
        }
      }
    }
  }
  checker.note("rounds of your broadcast: " + table + " ranks");
  checker.proved("broadcast: everybody has the root's data after ceil(log2 P) rounds, for any root and size");
}

void check_reduce(const Seam& seam, Checker& checker) {
  checker.in_part("reduce");
  for (const int world : checker.worlds({1, 2, 3, 4, 5, 8})) {
    for (const int root : roots(world)) {
      expect_inside(checker, world, fmt::format("reduce to rank {}", root),
                    [&](Rank& rank, std::span<float> data) { seam.reduce(rank, data, root); });
    }
    for (const size_t count : {size_t{12}, size_t{1}, size_t{0}}) {
      for (const int root : roots(world)) {
        auto buffers = CountedBuffers::make(world, count);
        const auto report = checker.run({.world = world, .rendezvous = count == 1}, [&](Rank& rank) {
          seam.reduce(rank, buffers.of(rank.rank()), root);
        });
        if (count > 0) expect_some(checker, report, fmt::format("reduce to rank {}", root));
        if (const auto wrong = buffers.first_wrong_of(root)) {
          const auto what = fmt::format("reduce to rank {}: {}", root, wrong->text());
          for (int r = 0; r < world; ++r) {
            if (!buffers.first_wrong_of(r)) {
              checker.fail("root ignored", fmt::format("{}; the sum is on rank {}", what, r),
                           "Count ranks from the root, me = (rank - root + P) % P, and add it again for the "
                           "peer.");
            }
          }
          if (wrong->has_repeats()) {
            checker.fail("counted twice", what,
                         "A contribution came on two ways. In a tree a rank sends to its parent once, after "
                         "its children's sums have arrived, and is done.");
          }
          if (wrong->counts.empty()) {
            checker.fail("wrong data", what, "Add what arrives, element by element, to what you have.");
          }
          if (wrong->counts[index(root)] == 0) {
            checker.fail("left out", what,
                         "The root's own contribution is gone: recv writes over what was there. Let messages "
                         "arrive in a vector of your own, as long as data, and add that.");
          }
          checker.fail("left out", what,
                       "A contribution did not arrive at the root. A rank must receive and add everything "
                       "from its children before it sends to its parent.");
        }
        expect_rounds(checker, report, "reduce", root);
      }
    }
  }
  checker.proved("reduce: the root holds every contribution once, after ceil(log2 P) rounds");
}

/// What stands in part k of a buffer, against what should.
void expect_part(Checker& checker, const std::string& where, std::span<const float> found, int k) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == value(k, i)) continue;
    const auto place = fmt::format("{}, element {} of part {}", where, i, k);
    if (found[i] == kUntouched) {
      checker.fail("left out", place + " was never written",
                   "Every rank has a part, the root too: its own part is copied, not sent.");
    }
    const int whose = owner(found[i]);
    checker.fail("wrong part",
                 whose >= 0 && whose < 8 ? fmt::format("{} holds part {}", place, whose)
                                         : fmt::format("{} is {}, expected {}", place, found[i], value(k, i)),
                 "Part k is all.subspan(k * part.size(), part.size()), and belongs to rank k, whoever is the "
                 "root.");
  }
}

std::vector<float> all_parts(int world, size_t count) {
  std::vector<float> all;
  for (int k = 0; k < world; ++k) {
    const auto part = values(k, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void check_scatter(const Seam& seam, Checker& checker) {
  checker.in_part("scatter");
  for (const int world : checker.worlds({1, 2, 3, 4, 5, 8})) {
    for (const size_t count : {size_t{3}, size_t{1}, size_t{250}, size_t{0}}) {
      for (const int root : roots(world)) {
        const auto all = all_parts(world, count);
        std::vector<std::vector<float>> parts(index(world), std::vector<float>(count, kUntouched));
        const auto report = checker.run({.world = world, .rendezvous = count == 1}, [&](Rank& rank) {
          const bool is_root = rank.rank() == root;
          seam.scatter(rank, is_root ? std::span<const float>(all) : std::span<const float>(),
                       parts[index(rank.rank())], root);
        });
        if (count > 0) expect_some(checker, report, fmt::format("scatter from rank {}", root));
        for (int r = 0; r < world; ++r) {
          expect_part(checker, fmt::format("scatter from rank {} of {}: rank {}", root, world, r),
                      parts[index(r)], r);
        }
        const auto most = static_cast<int64_t>(index(world - 1) * count * sizeof(float));
        checker.expect(report.sent_bytes(root) <= most, "too many bytes",
                       fmt::format("scatter from rank {} of {}: the root sent {} bytes, the parts of the "
                                   "others are {}",
                                   root, world, report.sent_bytes(root), most),
                       "A rank needs its own part. Sending everything to everybody is a broadcast.");
      }
    }
  }
  checker.proved("scatter: rank k has part k, and the root sent no byte more than the others' parts");
}

void check_gather(const Seam& seam, Checker& checker) {
  checker.in_part("gather");
  for (const int world : checker.worlds({1, 2, 3, 4, 5, 8})) {
    for (const size_t count : {size_t{3}, size_t{1}, size_t{250}, size_t{0}}) {
      for (const int root : roots(world)) {
        std::vector<float> all(index(world) * count, kUntouched);
        const auto report = checker.run({.world = world, .rendezvous = count == 1}, [&](Rank& rank) {
          const auto part = values(rank.rank(), count);
          seam.gather(rank, part, rank.rank() == root ? std::span<float>(all) : std::span<float>(), root);
        });
        if (count > 0) expect_some(checker, report, fmt::format("gather to rank {}", root));
        for (int k = 0; k < world; ++k) {
          expect_part(checker, fmt::format("gather to rank {} of {}: the root", root, world),
                      std::span<const float>(all).subspan(index(k) * count, count), k);
        }
      }
    }
  }
  checker.proved("gather: the root has everybody's part, in rank order");
}

void check_all_gather(const Seam& seam, Checker& checker) {
  checker.in_part("all_gather");
  for (const int world : checker.worlds({1, 2, 3, 4, 5, 8})) {
    for (const size_t count : {size_t{3}, size_t{1}, size_t{250}, size_t{0}}) {
      std::vector<std::vector<float>> all(index(world), std::vector<float>(index(world) * count, kUntouched));
      const auto report = checker.run({.world = world, .rendezvous = count == 1}, [&](Rank& rank) {
        const auto part = values(rank.rank(), count);
        seam.all_gather(rank, part, all[index(rank.rank())]);
      });
      if (count > 0) expect_some(checker, report, "all_gather");
      int64_t busiest = 0;
      for (int r = 0; r < world; ++r) {
        busiest = std::max(busiest, report.sent_bytes(r));
        for (int k = 0; k < world; ++k) {
          expect_part(checker, fmt::format("all_gather on {} ranks: rank {}", world, r),
                      std::span<const float>(all[index(r)]).subspan(index(k) * count, count), k);
        }
      }
      if (world == 8 && count == 250) {
        checker.note(
            fmt::format("all_gather of 1000 bytes a rank on 8 ranks: your busiest rank sent {} bytes; "
                        "in a ring everybody sends {}",
                        busiest, 7 * 1000));
      }
    }
  }
  checker.proved("all_gather: everybody has everybody's part, in rank order");
}

void check_barrier(const Seam& seam, Checker& checker) {
  checker.in_part("barrier");
  for (const int world : checker.worlds({2, 3, 4, 5, 8, 1})) {
    for (int late = 0; late < world; ++late) {
      const double late_us = 1000 + static_cast<double>(checker.draw(index(late)) % 1000);
      std::vector<double> left(index(world));
      const auto report = checker.run({.world = world, .rendezvous = late % 2 == 1}, [&](Rank& rank) {
        rank.compute(rank.rank() == late ? late_us : 1);
        seam.barrier(rank);
        left[index(rank.rank())] = rank.now_us();
      });
      if (messages(report) == 0 && report.time_us > late_us) {
        checker.fail(
            "a sleep",
            fmt::format("{} ranks waited {} us and sent no message", world, report.time_us - late_us),
            "Waiting for some time is no barrier: it is wrong on the day on which a rank is later "
            "than that, and wasted on all other days. A rank may leave when it has heard of all "
            "others.");
      }
      expect_some(checker, report, "barrier");
      for (int r = 0; r < world; ++r) {
        checker.expect(left[index(r)] >= late_us, "left too early",
                       fmt::format("rank {} of {} left the barrier at {} us, rank {} came at {} us", r, world,
                                   left[index(r)], late, late_us),
                       "To tell one rank that all have come is half of it: everybody must have heard of "
                       "everybody, directly or through others.");
      }
      checker.expect(
          report.time_us <= late_us + rounds_of(world) + 1e-9, "too many rounds",
          fmt::format("barrier on {} ranks: the last one came at {} us and all were gone at {} us: "
                      "{} rounds, expected at most ceil(log2 {}) = {}",
                      world, late_us, report.time_us, report.time_us - late_us, world, rounds_of(world)),
          "All to one and back takes 2(P - 1) messages after each other. In the dissemination "
          "barrier everybody sends in every round, to the rank at distance 1, 2, 4, ...");
    }
  }
  checker.proved(
      "barrier: whoever is late, nobody leaves before it comes; ceil(log2 P) rounds later all are gone");
}

/// What primitives are for: rank 0's weights to everybody, a part of the data for each, and the results back.
void check_training(const Seam& seam, Checker& checker) {
  checker.in_part("all of them, one after the other");
  const int world = checker.worlds({4})[0];
  const size_t features = 8;
  const auto draw = [&](uint64_t salt) { return static_cast<float>(checker.draw(salt) % 17) - 8; };
  std::vector<float> samples;
  for (size_t i = 0; i < index(world) * features; ++i) samples.push_back(draw(i));
  std::vector<float> outputs(index(world), kUntouched), weights_of_rank_0(features);
  for (size_t i = 0; i < features; ++i) weights_of_rank_0[i] = draw(1000 + i);
  checker.run({.world = world}, [&](Rank& rank) {
    const bool is_boss = rank.rank() == 0;
    std::vector<float> weights = is_boss ? weights_of_rank_0 : std::vector<float>(features, 99);
    seam.broadcast(rank, weights, 0);
    std::vector<float> mine(features);
    seam.scatter(rank, is_boss ? std::span<const float>(samples) : std::span<const float>(), mine, 0);
    std::vector<float> output(1, 0);
    for (size_t i = 0; i < features; ++i) output[0] += weights[i] * mine[i];
    seam.gather(rank, output, is_boss ? std::span<float>(outputs) : std::span<float>(), 0);
    seam.barrier(rank);
  });
  std::string table;
  for (int r = 0; r < world; ++r) {
    float expected = 0;
    for (size_t i = 0; i < features; ++i) expected += weights_of_rank_0[i] * samples[index(r) * features + i];
    checker.expect(
        outputs[index(r)] == expected, "wrong data",
        fmt::format("weights by broadcast, samples by scatter, predictions by gather: rank {}'s is "
                    "{} at rank 0, expected {}",
                    r, outputs[index(r)], expected),
        "Each of the functions is right alone, but not after each other. Does one of them send a "
        "message that another one receives?");
    table += fmt::format("{}rank {}: {}", r == 0 ? "" : ", ", r, outputs[index(r)]);
  }
  checker.note("predictions that rank 0 gathered, one of each rank for its own sample: " + table);
  checker.proved("together they initialise a model, hand out its data and collect its predictions");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_broadcast(seam, checker);
  check_reduce(seam, checker);
  check_scatter(seam, checker);
  check_gather(seam, checker);
  check_all_gather(seam, checker);
  check_barrier(seam, checker);
  check_training(seam, checker);
}

}  // namespace lab::primitives
