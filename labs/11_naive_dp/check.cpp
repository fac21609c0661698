#include "11_naive_dp/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lab/replicas.h"

namespace lab::naive_dp {

namespace {

constexpr int64_t kDim = 8, kShare = 3;
constexpr int kSteps = 4;

struct Kind {
  std::string name;
  std::shared_ptr<Net> (*make)(uint64_t seed);
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"the plain net", [](uint64_t seed) { return make_mlp(kDim, 3, seed); }},
      {"the net with a tied weight", [](uint64_t seed) { return make_tied(kDim, seed); }},
      {"the net with a frozen layer", [](uint64_t seed) { return make_frozen(kDim, seed); }},
      {"the net with two experts", [](uint64_t seed) { return make_experts(kDim, seed); }},
  };
  return all;
}

uint64_t seed_of(const Checker& checker, int rank) {
  return checker.draw(static_cast<uint64_t>(rank)) % 1'000'000;
}

std::vector<std::shared_ptr<Net>> make_nets(const Kind& kind, const Checker& checker, int world) {
  std::vector<std::shared_ptr<Net>> nets;
  for (int r = 0; r < world; ++r) nets.push_back(kind.make(seed_of(checker, r)));
  return nets;
}

void check_broadcast(const Seam& seam, Checker& checker) {
  for (const auto& kind : kinds()) {
    for (const int world : checker.worlds({2, 3, 4, 1})) {
      const auto nets = make_nets(kind, checker, world);
      std::vector<Values> before;
      for (const auto& net : nets) before.push_back(weights_of(*net));
      checker.run({.world = world, .keep_events = false},
                  [&](Rank& rank) { seam.broadcast_weights(rank, *nets[static_cast<size_t>(rank.rank())]); });
      const auto parameters = unique_parameters(*nets[0]);
      for (int r = 0; r < world; ++r) {
        const auto weights = weights_of(*nets[static_cast<size_t>(r)]);
        for (size_t i = 0; i < weights.size(); ++i) {
          if (torch::equal(weights[i], before[0][i])) continue;
          const auto where = fmt::format("rank {} of {}, {} of {}", r, world, parameters[i].name, kind.name);
          if (r == 0) {
            checker.fail("rank 0's weights changed", where + " is not what it was before the broadcast",
                         "Rank 0 is the root: its weights are the ones that all shall have. An average of "
                         "all is no initialisation.");
          }
          if (!parameters[i].tensor.requires_grad()) {
            checker.fail("frozen weights differ", where + " is not rank 0's",
                         "A frozen parameter is never stepped, but it takes part in forward: it must be the "
                         "same on all ranks, too.");
          }
          const bool is_own = torch::equal(weights[i], before[static_cast<size_t>(r)][i]);
          checker.fail("replicas differ",
                       where + (is_own ? " still holds this rank's own initial weights"
                                       : " holds neither its own weights nor rank 0's"),
                       "Each rank starts from a seed of its own. Broadcast every parameter from rank 0 "
                       "before the first step: gradients of different models are no use to each other.");
        }
      }
    }
  }
  checker.proved("all ranks start with rank 0's weights, the frozen ones too");
}

void check_deal(const Seam& seam, Checker& checker, int world, int64_t size, uint64_t epoch) {
  const uint64_t seed = checker.draw(100) % 1000;
  const auto draw = [&](int rank) { return seam.samples_of(rank, world, size, seed, epoch); };
  const auto share = static_cast<size_t>((size + world - 1) / world);
  const auto what = [&](int rank) {
    return fmt::format("rank {} of {}, {} samples, epoch {}", rank, world, size, epoch);
  };
  std::map<int64_t, int> times;
  const auto first = draw(0);
  for (int r = 0; r < world; ++r) {
    const auto own = draw(r);
    for (const int64_t index : own) {
      checker.expect(index >= 0 && index < size, "no such sample",
                     fmt::format("{}: index {}", what(r), index), "Indices go from 0 to size - 1.");
      ++times[index];
    }
    checker.expect(r == 0 || size < world || own != first, "same samples on every rank",
                   what(r) + " draws what rank 0 draws",
                   "Everything would run, replicas would be equal, and all ranks together would do the work "
                   "of one. Entry i of the order is for rank i % world_size.");
    checker.expect(own.size() == share, "unequal shares",
                   fmt::format("{} draws {} indices, expected {}", what(r), own.size(), share),
                   "All ranks must make equally many steps, or one waits for an all-reduce that the others "
                   "never make. Round up, and take what is missing from the beginning of the order.");
    checker.expect(own == draw(r), "not reproducible", what(r) + ": a second call gives other indices",
                   "The order must follow from seed and epoch alone: ranks do not talk about it, and a run "
                   "that is resumed must see the same samples.");
  }
  const auto most =
      static_cast<int>((share * static_cast<size_t>(world) - 1) / static_cast<size_t>(size)) + 1;
  for (int64_t index = 0; index < size; ++index) {
    const auto found = times.find(index);
    checker.expect(found != times.end(), "sample left out",
                   fmt::format("{} ranks, {} samples, epoch {}: nobody draws {}", world, size, epoch, index),
                   "The ranks deal one and the same order out: shuffle by (seed, epoch), never by the rank.");
    checker.expect(found->second <= most, "sample drawn twice",
                   fmt::format("{} ranks, {} samples, epoch {}: {} is drawn {} times", world, size, epoch,
                               index, found->second),
                   "Only what fills up the last round may be drawn again, and those one by one from the "
                   "order's beginning.");
  }
  int64_t repeated = 0;
  for (const auto& [index, count] : times) repeated += count - 1;
  checker.expect(repeated == static_cast<int64_t>(share) * world - size, "sample drawn twice",
                 fmt::format("{} ranks, {} samples, epoch {}: {} indices too many", world, size, epoch,
                             repeated - (static_cast<int64_t>(share) * world - size)),
                 "Only what fills up the last round may be drawn again.");
}

void check_sampler(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 3, 4, 1})) {
    checker.in_world(world);
    for (const int64_t size : {24, 25, 23, 101, 1, 2})
      for (const uint64_t epoch : {0, 1}) check_deal(seam, checker, world, size, epoch);
    const auto epoch = [&](uint64_t seed, uint64_t number) {
      return seam.samples_of(0, world, 100 * world, seed, number);
    };
    auto sorted = epoch(5, 0);
    std::sort(sorted.begin(), sorted.end());
    checker.expect(
        epoch(5, 0) != sorted, "not shuffled", "rank 0 draws its indices in ascending order",
        "Samples that lie side by side are often alike. Shuffle the order before you deal it out.");
    checker.expect(epoch(5, 0) != epoch(5, 1) && epoch(5, 1) != epoch(5, 2), "same order every epoch",
                   fmt::format("{} ranks, {} samples: rank 0 draws the same in one epoch and the next", world,
                               100 * world),
                   "Every epoch needs another order: let seed and epoch seed the shuffle. LibTorch's own "
                   "DistributedRandomSampler has this mistake, whatever its set_epoch() is told.");
    checker.expect(epoch(5, 0) != epoch(6, 0), "seed ignored",
                   "rank 0 draws the same with seeds 5 and 6, epoch 0",
                   "Two runs with different seeds must see different orders.");
  }
  checker.proved("the ranks draw every sample once, in another order in every epoch");
}

/// What all ranks draw, step by step and epoch by epoch.
Batches draw_batches(const Seam& seam, const Checker& checker, int world, int64_t size) {
  Batches batches;
  for (uint64_t epoch = 0; static_cast<int>(batches.size()) < kSteps; ++epoch) {
    std::vector<std::vector<int64_t>> drawn;
    for (int r = 0; r < world; ++r) drawn.push_back(seam.samples_of(r, world, size, checker.seed(), epoch));
    for (int64_t at = 0; at + kShare <= static_cast<int64_t>(drawn[0].size()); at += kShare) {
      auto& step = batches.emplace_back();
      for (const auto& own : drawn) step.emplace_back(own.begin() + at, own.begin() + at + kShare);
    }
  }
  batches.resize(kSteps);
  return batches;
}

std::string table_of_losses(const History& history, const std::vector<TrueStep>& truth) {
  std::string text = "each rank's own loss, their mean, and the loss of one process on the whole batch\nstep";
  const auto world = history.losses.size();
  for (size_t r = 0; r < world; ++r) text += fmt::format("   rank {}", r);
  text += "     mean  one process";
  for (size_t s = 0; s < truth.size(); ++s) {
    text += fmt::format("\n{:>4}", s + 1);
    double sum = 0;
    for (size_t r = 0; r < world; ++r) {
      text += fmt::format("  {:.5f}", history.losses[r][s]);
      sum += history.losses[r][s];
    }
    text += fmt::format("  {:.5f}      {:.5f}", sum / static_cast<double>(world), truth[s].loss);
  }
  return text;
}

/// How many floats each rank has reduced in each step.
void expect_counts(Checker& checker, const Kind& kind, const Net& net, const ReductionLog& log, int world) {
  int64_t expected = 0, tied = 0, frozen = 0;
  for (const auto& parameter : unique_parameters(net)) {
    const int64_t count = parameter.tensor.numel();
    (parameter.tensor.requires_grad() ? expected : frozen) += count;
    if (parameter.is_tied) tied += count;
  }
  for (int s = 0; s < kSteps; ++s) {
    for (int r = 0; r < world; ++r) {
      const int64_t found = log.floats_of(r, s);
      if (found == expected) continue;
      const auto what = fmt::format(
          "step {}, rank {} of {}: {} floats were reduced for {}, which has {} that "
          "are trained",
          s + 1, r, world, found, kind.name, expected);
      checker.expect(found > 0, "gradients not averaged", what,
                     "Autograd knows this rank's samples alone. After backward() each gradient needs an "
                     "all-reduce, and a division by world_size.");
      checker.expect(tied == 0 || found != expected + tied, "tied weight averaged twice", what,
                     "parameters() lists a weight that two layers share twice; it has one gradient. Skip a "
                     "parameter that is_same() as one before. Summed twice and divided once it would even be "
                     "world_size times too large.");
      checker.expect(frozen == 0 || found != expected + frozen, "frozen parameter reduced", what,
                     "A parameter whose requires_grad() is false has no gradient: nobody needs its zeros.");
      checker.fail("wrong floats reduced", what, "Reduce each gradient once, whole, and nothing else.");
    }
  }
}

void check_steps(const Seam& seam, Checker& checker, const Kind& kind, int world) {
  const bool is_experts = &kind == &kinds().back();
  const int64_t size = 9 * world + 2;
  const uint64_t data_seed = checker.draw(200) % 1000;
  const auto samples =
      is_experts ? make_two_sided_samples(size, kDim, data_seed) : make_samples(size, kDim, data_seed);
  const auto batches =
      is_experts ? one_sided_batches(samples, world, kSteps) : draw_batches(seam, checker, world, size);
  const auto alone = kind.make(seed_of(checker, 0));
  const auto truth = train_alone(*alone, samples, batches);

  ReductionLog log(world);
  History history(world);
  const auto nets = make_nets(kind, checker, world);
  std::vector<torch::optim::SGD> optimizers;
  for (const auto& net : nets) optimizers.push_back(make_optimizer(*net));
  const auto body = [&](Rank& rank) {
    const auto r = static_cast<size_t>(rank.rank());
    seam.broadcast_weights(rank, *nets[r]);
    history.weights[r].push_back(weights_of(*nets[r]));
    for (int s = 0; s < kSteps; ++s) {
      log.begin_step(rank.rank(), s, nets[r]);
      const auto& rows = batches[static_cast<size_t>(s)][r];
      history.losses[r].push_back(static_cast<double>(
          seam.train_step(rank, *nets[r], optimizers[r], samples.input_of(rows), samples.target_of(rows))));
      history.weights[r].push_back(weights_of(*nets[r]));
    }
  };
  checker.in_world(world);
  const WorldOptions options{.world = world, .seed = checker.seed(), .keep_events = false};
  const auto report = run_world(options, body);
  const bool is_exception = report.problem == "exception";
  const auto difference = log.first_difference(/*counts=*/!report.problem.empty() && !is_exception);
  if (is_experts && !difference.empty()) {
    checker.fail("missing gradient skipped", difference,
                 "In this step one rank has no sample for one of the experts: its gradient is undefined "
                 "there, and defined elsewhere. All ranks must make the same all-reduces in the same order: "
                 "let an undefined gradient count as zeros.");
  }
  checker.expect(difference.empty(), "orders differ", difference,
                 "All ranks must reduce the same gradients in the same order: the world matches calls by "
                 "their order, not by their names.");
  checker.expect_no_problem(report);

  expect_counts(checker, kind, *nets[0], log, world);
  expect_parity(checker, kind.name, *nets[0], history, truth);
  for (size_t s = 0; s < truth.size(); ++s) {
    for (size_t r = 0; r < history.losses.size(); ++r) {
      const double found = history.losses[r][s], right = truth[s].losses[r];
      checker.expect(std::abs(found - right) <= 1e-4 * (1 + right), "wrong loss",
                     fmt::format("step {}, rank {} of {}: train_step returned {:.5f}, the loss of this "
                                 "rank's samples is {:.5f}",
                                 s + 1, r, world, found, right),
                     "Return the loss of this rank's own samples, from before the step.");
    }
  }
}

/// What the ranks' logs would say: shares of 32 samples, whose losses differ a little.
void show_losses(const Seam& seam, Checker& checker) {
  const int world = checker.worlds({3}).front(), steps = 6;
  const int64_t share = 32;
  const auto samples = make_samples(share * world, kDim, checker.draw(300) % 1000);
  const auto batches = make_batches(checker, world, steps, share, share * world);
  const auto make = [](uint64_t seed) { return make_mlp(kDim, 3, seed); };
  const auto nets = make_nets({"", make}, checker, world);
  const auto truth = train_alone(*make(seed_of(checker, 0)), samples, batches);
  History history(world);
  checker.run({.world = world, .keep_events = false}, [&](Rank& rank) {
    const auto r = static_cast<size_t>(rank.rank());
    auto optimizer = make_optimizer(*nets[r]);
    seam.broadcast_weights(rank, *nets[r]);
    for (const auto& step : batches) {
      history.losses[r].push_back(static_cast<double>(
          seam.train_step(rank, *nets[r], optimizer, samples.input_of(step[r]), samples.target_of(step[r]))));
    }
  });
  checker.note(table_of_losses(history, truth));
}

/// One step to look at: backward first, then all-reduces, one after the other.
void show_step(const Seam& seam, Checker& checker) {
  const int world = checker.worlds({3}).front();
  const auto samples = make_samples(kShare * world, kDim, 1);
  const auto batches = make_batches(checker, world, 1, kShare, kShare * world);
  const auto nets = make_nets({"", [](uint64_t seed) { return make_mlp(kDim, 4, seed); }}, checker, world);
  checker.show(checker.run({.world = world, .latency_us = 5, .us_per_byte = 0.01}, [&](Rank& rank) {
    const auto r = static_cast<size_t>(rank.rank());
    auto optimizer = make_optimizer(*nets[r]);
    nets[r]->before_backward_of = [&](int layer) {
      rank.note(fmt::format("backward of layer {}", layer));
      rank.compute(40);
    };
    seam.train_step(rank, *nets[r], optimizer, samples.input_of(batches[0][r]),
                    samples.target_of(batches[0][r]));
    nets[r]->before_backward_of = nullptr;
  }));
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_broadcast(seam, checker);
  check_sampler(seam, checker);
  for (const auto& kind : kinds()) {
    for (const int world : checker.worlds({2, 3, 4, 1})) check_steps(seam, checker, kind, world);
  }
  checker.proved(
      fmt::format("after each of {} steps all ranks have the weights of one process on the whole "
                  "batch, and the same bits",
                  kSteps));
  checker.proved("a tied weight is averaged once, a frozen one never, a missing gradient counts as zeros");
  show_losses(seam, checker);
  show_step(seam, checker);
}

}  // namespace lab::naive_dp
