// How the samples are dealt out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "11_naive_dp/check.h"

namespace lab::naive_dp {

namespace {

using Indices = std::vector<int64_t>;

/// Who asks for samples.
struct Question {
  int world = 1;
  int64_t size = 1;
  uint64_t seed = 0, epoch = 0;
};

/// What the learner's code answers.
struct Deal {
  Question asked;
  Indices order;                     ///< For one rank alone.
  std::vector<Indices> own, second;  ///< [rank], asked for twice.
};

std::vector<Deal> ask(const Seam& seam, Checker& checker, const std::vector<Question>& questions) {
  return checker.in_child([&] {
    std::vector<Deal> all;
    for (const auto& asked : questions) {
      const auto& [world, size, seed, epoch] = asked;
      tell_progress(fmt::format("samples_of, {}, {} samples, epoch {}", counted(world, "rank"), size, epoch),
                    world);
      auto& deal = all.emplace_back(Deal{.asked = asked});
      for (int r = 0; r < world; ++r) deal.own.push_back(seam.samples_of(r, world, size, seed, epoch));
      deal.order = seam.samples_of(0, 1, size, seed, epoch);
      deal.second.resize(static_cast<size_t>(world));
      for (int r = world; r-- > 0;)
        deal.second[static_cast<size_t>(r)] = seam.samples_of(r, world, size, seed, epoch);
    }
    return all;
  });
}

/// Each index once, and equally many for each rank.
void expect_partition(Checker& checker, const Deal& deal) {
  const auto& [world, size, seed, epoch] = deal.asked;
  const auto where = fmt::format("{}, {}, epoch {}", counted(world, "rank"), counted(size, "sample"), epoch);
  const auto share = static_cast<size_t>((size + world - 1) / world);
  std::map<int64_t, int64_t> times;
  for (int r = 0; r < world; ++r) {
    const auto& own = deal.own[static_cast<size_t>(r)];
    for (const int64_t index : own) {
      checker.expect(index >= 0 && index < size, "no such sample",
                     fmt::format("{}: rank {} draws index {}", where, r, index),
                     "Indices go from 0 to size - 1.");
      ++times[index];
    }
    checker.expect(own.size() == share, "unequal shares",
                   fmt::format("{}: rank {} draws {}, expected {}", where, r,
                               counted(static_cast<int64_t>(own.size()), "sample"), share),
                   "All ranks must make equally many steps, or one waits for an all-reduce that the others "
                   "never make. Round up, and take what is missing from the beginning of the order.");
    checker.expect(own == deal.second[static_cast<size_t>(r)], "not reproducible",
                   fmt::format("{}: rank {} draws other indices when it is asked again", where, r),
                   "The order must follow from seed and epoch alone, not from earlier calls: ranks do not "
                   "talk about it, and a run that is resumed must see the same samples.");
  }
  const bool are_same =
      std::all_of(deal.own.begin(), deal.own.end(), [&](const auto& own) { return own == deal.own[0]; });
  checker.expect(world == 1 || size < 2 * world || !are_same, "same samples on every rank",
                 fmt::format("{}: all ranks draw what rank 0 draws", where),
                 "Everything would run, replicas would be equal, and all ranks together would do the work of "
                 "one. Entry i of the order is for rank i % world_size.");
  for (int64_t index = 0; index < size; ++index) {
    checker.expect(times[index] > 0, "sample left out", fmt::format("{}: nobody draws {}", where, index),
                   "The ranks deal one and the same order out, all of it: shuffle by (seed, epoch), never by "
                   "the rank.");
  }
  const int64_t most = (static_cast<int64_t>(share) * world - 1) / size + 1;
  for (int64_t index = 0; index < size; ++index) {
    checker.expect(times[index] <= most, "sample drawn twice",
                   fmt::format("{}: {} is drawn {} times", where, index, times[index]),
                   "Only what fills up the last round may be drawn again, and those one by one from the "
                   "order's beginning.");
  }
}

/// Entry i of the order is for rank i % world; the order is that of one rank alone.
void expect_order(Checker& checker, const Deal& deal) {
  const auto& [world, size, seed, epoch] = deal.asked;
  const auto share = (size + world - 1) / world;
  const auto entry = [&](int64_t i) { return deal.order[static_cast<size_t>(i % size)]; };
  for (int r = 0; r < world; ++r) {
    const auto& own = deal.own[static_cast<size_t>(r)];
    for (int64_t k = 0; k < share; ++k) {
      const int64_t i = k * world + r, found = own[static_cast<size_t>(k)];
      if (found == entry(i)) continue;
      const auto what = fmt::format(
          "{}, {}, epoch {}: rank {} draws {} as its number {}, expected {}, entry "
          "{} of the order that a single rank draws",
          counted(world, "rank"), counted(size, "sample"), epoch, r, found, k + 1, entry(i), i % size);
      checker.expect(i < size, "filled up otherwise", what,
                     "What is missing in the last round is taken from the beginning of the order, one by "
                     "one.");
      checker.expect(found != entry(r * share + k) || own.back() != entry(r * share + share - 1),
                     "dealt in blocks", what,
                     "Deal the order like cards: entry i is for rank i % world_size. Then the first rounds "
                     "of all ranks are the beginning of the order, whatever the number of ranks.");
      checker.fail("not dealt like cards", what,
                   "Entry i of the order is for rank i % world_size, and (seed, epoch) alone decide the "
                   "order: not the rank, and not the number of ranks.");
    }
  }
}

/// How many of the neighbours in `one` are neighbours in `other`, too: about 2 of them by chance.
int64_t shared_neighbours(const Indices& one, const Indices& other) {
  std::vector<size_t> place(one.size());
  for (size_t i = 0; i < other.size(); ++i) place[static_cast<size_t>(other[i])] = i;
  int64_t count = 0;
  for (size_t i = 1; i < one.size(); ++i) {
    const auto a = static_cast<int64_t>(place[static_cast<size_t>(one[i - 1])]);
    const auto b = static_cast<int64_t>(place[static_cast<size_t>(one[i])]);
    if (std::abs(a - b) == 1) ++count;
  }
  return count;
}

void expect_shuffled(Checker& checker, const std::vector<Deal>& deals) {
  const int64_t size = deals[0].asked.size, most = size / 5;
  Indices sorted(static_cast<size_t>(size));
  std::iota(sorted.begin(), sorted.end(), 0);
  for (size_t i = 0; i < sorted.size(); ++i) {
    checker.expect(std::any_of(deals.begin(), deals.end(),
                               [&](const Deal& deal) { return deal.order[i] != deals[0].order[i]; }),
                   "not shuffled",
                   fmt::format("{} samples: entry {} is sample {} in all of {} orders", size, i,
                               deals[0].order[i], deals.size()),
                   "Shuffle the whole order, the first and the last entry included.");
  }
  for (const auto& deal : deals) {
    const auto& [world, n, seed, epoch] = deal.asked;
    int64_t way = 0;  // a third of the size for each, on average
    for (int64_t i = 0; i < size; ++i) way += std::abs(deal.order[static_cast<size_t>(i)] - i);
    const int64_t neighbours = shared_neighbours(deal.order, sorted);
    checker.expect(neighbours <= most && way > size * size / 5, "not shuffled",
                   fmt::format("{} samples, seed {}, epoch {}: {} neighbours in the order are neighbours in "
                               "the data, and a sample is {} places from its own on average",
                               size, seed, epoch, neighbours, way / size),
                   "Samples that lie side by side are often alike. Shuffle the whole order before you deal "
                   "it out.");
    for (const auto& other : deals) {
      const bool is_epoch = seed == other.asked.seed;
      if (&other == &deal || (!is_epoch && epoch != other.asked.epoch)) continue;
      const int64_t same = shared_neighbours(deal.order, other.order);
      if (same <= most) continue;
      const auto what = fmt::format("{} samples: {} of the neighbours of {} {} are neighbours in {}, too",
                                    size, same, is_epoch ? "epoch" : "seed", is_epoch ? epoch : seed,
                                    is_epoch ? other.asked.epoch : other.asked.seed);
      checker.expect(!is_epoch, "same order every epoch", what,
                     "Every epoch needs a shuffle of its own: let seed and epoch seed it, all of their bits. "
                     "LibTorch's own DistributedRandomSampler ignores what its set_epoch() is given.");
      checker.fail("seed ignored", what, "Two runs with different seeds must see different orders.");
    }
  }
}

std::vector<Question> questions_of(const Checker& checker) {
  std::vector<Question> all;
  const uint64_t seed = checker.draw(100) % 1000;
  for (const int world : checker.worlds({2, 3, 4, 1, 5, 6, 7, 8})) {
    for (const int64_t size : {24, 25, 23, 101, 1, 2})
      for (const uint64_t epoch : {0, 1}) all.push_back({world, size, seed, epoch});
  }
  for (const int world : checker.fresh_worlds(2, 9, 40)) {
    const auto salt = 110 + static_cast<uint64_t>(world);
    for (const int64_t most : {int64_t{world} - 1, int64_t{300}, int64_t{5000}})
      all.push_back({world, checker.draw_between(salt, 1, most), seed + 7, checker.draw(salt) % 1000});
  }
  all.push_back(
      {checker.worlds({3})[0], checker.draw_between(101, 65'537, 70'000), seed, 2});  // over 16 bits
  return all;
}

}  // namespace

void check_sampler(const Seam& seam, Checker& checker) {
  const auto questions = questions_of(checker);
  const auto deals = ask(seam, checker, questions), later = ask(seam, checker, questions);
  for (size_t i = 0; i < deals.size(); ++i) {
    const Deal& deal = deals[i];
    checker.in_world(deal.asked.world);
    expect_partition(checker, deal);
    checker.expect(deal.own == later[i].own, "not reproducible",
                   fmt::format("{}, {} samples, epoch {}: another process draws other indices",
                               counted(deal.asked.world, "rank"), deal.asked.size, deal.asked.epoch),
                   "Every rank is a process of its own: the order must follow from seed and epoch alone, not "
                   "from the time, the process or std::random_device.");
  }
  for (const auto& deal : deals) {
    checker.in_world(deal.asked.world);
    expect_order(checker, deal);
  }
  checker.in_world(0);
  const int64_t size = checker.draw_between(102, 300, 500);
  const uint64_t seed = checker.draw(103) % 1000;
  std::vector<Question> epochs;
  for (const uint64_t epoch : {0, 1, 2, 3, 4, 5, 6, 7, 8, 255, 256, 257, 65536})
    epochs.push_back({1, size, seed, epoch});
  epochs.push_back({1, size, seed, 10 + checker.draw(104) % 200});
  for (const uint64_t other : {1, 2, 256, 65536})
    for (const uint64_t epoch : {0, 3}) epochs.push_back({1, size, seed + other, epoch});
  const auto orders = ask(seam, checker, epochs);
  for (const auto& deal : orders) expect_partition(checker, deal);
  expect_shuffled(checker, orders);
  checker.proved("the ranks draw every sample once, in another order in every epoch, dealt like cards");
}

}  // namespace lab::naive_dp
