#include "12_ddp/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lab/collectives.h"
#include "lab/replicas.h"

namespace lab::ddp {

namespace {

constexpr int64_t kDim = 8, kShare = 3;
constexpr int kSteps = 3;
constexpr double kLatencyUs = 5, kUsPerByte = 0.01;

/// Tells when it is asked to step.
struct WatchedSgd : torch::optim::SGD {
  WatchedSgd(const Net& net, std::function<void()> on_step)
      : torch::optim::SGD(make_optimizer(net)), before_step(std::move(on_step)) {}
  torch::Tensor step(LossClosure closure = nullptr) override {
    before_step();
    return torch::optim::SGD::step(std::move(closure));
  }
  std::function<void()> before_step;
};

int64_t trained_floats(const Net& net) {
  int64_t sum = 0;
  for (const auto& parameter : trainable_parameters(net)) sum += parameter.numel();
  return sum;
}

/// What backward is expected to bring first: later layers, whatever the order within one.
void expect_backward_order(Checker& checker, const Net& net, const ReductionLog& log, int world) {
  std::map<std::string, size_t> place;
  for (const auto& parameter : unique_parameters(net)) place.emplace(parameter.name, place.size());
  for (int r = 0; r < world; ++r) {
    const auto all = log.of(r, 0);
    for (size_t k = 1; k < all.size(); ++k) {
      const auto before = place.find(all[k - 1].parameter), now = place.find(all[k].parameter);
      if (before == place.end() || now == place.end()) continue;
      const auto layer = [](const auto& name) { return name.substr(0, name.find('.')); };
      checker.expect(layer(now->first) == layer(before->first) || now->second < before->second,
                     "not backward's order",
                     fmt::format("rank {} of {} reduced {} after {}", r, world, now->first, before->first),
                     "Backward computes the last layer's gradients first. Start each all-reduce in its "
                     "gradient's hook, not later in a loop of your own.");
    }
  }
}

/// Every gradient goes through one all-reduce in every step.
void expect_once(Checker& checker, const std::string& net_name, const Net& net, const ReductionLog& log,
                 int world) {
  for (int s = 0; s < kSteps; ++s) {
    for (int r = 0; r < world; ++r) {
      std::map<std::string, int> times;
      for (const auto& each : log.of(r, s)) ++times[each.parameter];
      const auto where = fmt::format("step {}, rank {} of {}, {}", s + 1, r, world, net_name);
      for (const auto& [name, count] : times) {
        checker.expect(name.empty() || count == 1, "averaged twice",
                       fmt::format("{}: {} all-reduces of the gradient of {}", where, count, name),
                       "One hook for each parameter, set once, in the constructor. net.parameters() lists a "
                       "tied parameter twice; trainable_parameters() does not.");
      }
      checker.expect(log.floats_of(r, s) == trained_floats(net), "wrong floats reduced",
                     fmt::format("{}: {} floats were reduced, {} are trained", where, log.floats_of(r, s),
                                 trained_floats(net)),
                     "Reduce each gradient once, whole, and nothing else.");
    }
  }
}

void check_steps(const Seam& seam, Checker& checker, const std::string& net_name,
                 std::shared_ptr<Net> (*make)(uint64_t seed), int world) {
  const auto samples = make_samples(kShare * world + 5, kDim, checker.draw(1) % 1000);
  const auto batches = make_batches(checker, world, kSteps, kShare, kShare * world + 5);
  const uint64_t seed = checker.draw(2) % 1'000'000;
  const auto truth = train_alone(*make(seed), samples, batches);

  ReductionLog log(world);
  History history(world);
  std::vector<std::shared_ptr<Net>> nets;
  std::vector<std::shared_ptr<void>> learners(static_cast<size_t>(world));  // kept for what is never waited
  for (int r = 0; r < world; ++r) nets.push_back(make(seed));
  std::string early;
  const auto body = [&](Rank& rank) {
    const auto r = static_cast<size_t>(rank.rank());
    int s = 0;
    WatchedSgd optimizer(*nets[r], [&] {
      const int64_t done = log.done_of(rank.rank(), s);
      if (log.floats_of(rank.rank(), s) < trained_floats(*nets[r]) || done < log.calls_of(rank.rank(), s)) {
        if (early.empty())
          early = fmt::format(
              "step {}, rank {} of {}: optimizer.step() was called when {} of {} gradients "
              "had been reduced",
              s + 1, r, world, done, trainable_parameters(*nets[r]).size());
      }
    });
    learners[r] = seam.make(rank, *nets[r]);
    nets[r]->before_backward_of = [&](int) { rank.compute(10); };
    history.weights[r].push_back(weights_of(*nets[r]));
    for (; s < kSteps; ++s) {
      log.begin_step(rank.rank(), s, nets[r]);
      const auto& rows = batches[static_cast<size_t>(s)][r];
      seam.train_step(learners[r].get(), optimizer, samples.input_of(rows), samples.target_of(rows));
      history.weights[r].push_back(weights_of(*nets[r]));
    }
    nets[r]->before_backward_of = nullptr;
  };
  checker.in_world(world);
  const auto report = run_world({.world = world, .seed = checker.seed(), .keep_events = false}, body);

  int64_t reduced = 0;
  for (int r = 0; r < world; ++r) reduced += log.floats_of(r, 0);
  const bool is_worse = !report.problem.empty() && report.problem != "never waited";
  checker.expect(reduced > 0 || is_worse, "nothing averaged",
                 fmt::format("step 1, {} ranks: nobody made an all-reduce", world),
                 "after_gradient() sets a hook for as long as the object lives that it returns: keep it in a "
                 "member. The hook starts an all-reduce of parameter.grad().");
  const auto difference = log.first_difference(/*counts=*/false);
  checker.expect(
      difference.empty(), "orders differ", difference,
      "The k-th all-reduce of one rank meets the k-th of the others, whatever it holds. Start them "
      "in the order in which the gradients come: it is the same on all ranks.");
  checker.expect(early.empty(), "stepped too early", early,
                 "start() only begins an all-reduce. Keep the Work of each, and wait() for all of them after "
                 "backward() and before optimizer.step().");
  checker.expect_no_problem(report);
  expect_once(checker, net_name, *nets[0], log, world);
  expect_parity(checker, net_name, *nets[0], history, truth);
  expect_backward_order(checker, *nets[0], log, world);
}

/// The virtual time of all-reduces alone, of the last `layers` layers, as backward would start them.
double time_of_reductions(Checker& checker, int world, int layers) {
  const auto report = checker.run(
      {.world = world, .latency_us = kLatencyUs, .us_per_byte = kUsPerByte, .keep_events = false},
      [&](Rank& rank) {
        std::vector<std::vector<float>> gradients;
        for (int i = 0; i < layers; ++i) {
          gradients.emplace_back(kDim);
          gradients.emplace_back(kDim * kDim);
        }
        std::vector<Work> all;
        for (auto& gradient : gradients) {
          all.push_back(
              rank.start([&gradient](Rank& stream) { collectives().all_reduce(stream, gradient); }));
        }
        for (auto& work : all) work.wait();
      });
  return report.time_us;
}

/// One step of the learner's code on the virtual clock.
Report timed_step(const Seam& seam, Checker& checker, int world, int layers, double layer_us, bool shows) {
  const auto samples = make_samples(kShare * world, kDim, 1);
  const auto batches = make_batches(checker, world, 1, kShare, kShare * world);
  std::vector<std::shared_ptr<Net>> nets;
  std::vector<std::shared_ptr<void>> learners(static_cast<size_t>(world));
  for (int r = 0; r < world; ++r) nets.push_back(make_mlp(kDim, layers, 1));
  return checker.run(
      {.world = world, .latency_us = kLatencyUs, .us_per_byte = kUsPerByte, .keep_events = shows},
      [&](Rank& rank) {
        const auto r = static_cast<size_t>(rank.rank());
        auto optimizer = make_optimizer(*nets[r]);
        learners[r] = seam.make(rank, *nets[r]);
        nets[r]->before_backward_of = [&](int layer) {
          rank.note(fmt::format("backward of layer {}", layer));
          rank.compute(layer_us);
        };
        seam.train_step(learners[r].get(), optimizer, samples.input_of(batches[0][r]),
                        samples.target_of(batches[0][r]));
        nets[r]->before_backward_of = nullptr;
      });
}

struct Timing {
  int world = 0;
  double compute = 0, communication = 0, most = 0, time = 0;
  double layer_compute = 0, layer_communication = 0;  ///< Of one layer.
};

std::string table_of(const std::vector<Timing>& timings) {
  std::string text =
      "virtual us of a step\nranks  backward  all-reduces  one after the other   yours  at most";
  for (const auto& row : timings) {
    text += fmt::format("\n{:>5}  {:>8.1f}  {:>11.1f}  {:>19.1f}  {:>6.1f}  {:>7.1f}", row.world, row.compute,
                        row.communication, row.compute + row.communication, row.time, row.most);
  }
  return text;
}

void check_overlap(const Seam& seam, Checker& checker) {
  const int layers = 8;
  std::vector<Timing> timings;
  for (const int world : checker.worlds({4, 2})) {
    if (world == 1) continue;  // there is nothing to send
    Timing timing{.world = world,
                  .communication = time_of_reductions(checker, world, layers),
                  .layer_communication = time_of_reductions(checker, world, 1)};
    for (const double ratio : {1.0, 2.0, 0.5}) {
      timing.compute = ratio * timing.communication;
      timing.layer_compute = timing.compute / layers;
      timing.most =
          std::max(timing.compute + timing.layer_communication, timing.communication + timing.layer_compute);
      timing.time = timed_step(seam, checker, world, layers, timing.layer_compute, /*shows=*/false).time_us;
      timings.push_back(timing);
    }
  }
  if (timings.empty()) return;
  checker.note(table_of(timings));
  for (const auto& timing : timings) {
    checker.in_world(timing.world);
    const auto what = fmt::format(
        "{} ranks, {} layers: backward takes {:.1f} us and the all-reduces {:.1f}, of which one layer's are "
        "{:.1f} and {:.1f}; a step of yours takes {:.1f}, expected at most {:.1f}",
        timing.world, layers, timing.compute, timing.communication, timing.layer_compute,
        timing.layer_communication, timing.time, timing.most);
    const double hidden = timing.compute + timing.communication - timing.time;
    checker.expect(hidden > 0.15 * std::min(timing.compute, timing.communication), "nothing overlaps", what,
                   "Backward and all-reduces take turns: somebody waits inside backward, or starts after "
                   "it. A hook must start its all-reduce and return at once; wait after backward().");
    checker.expect(timing.time <= timing.most * 1.01, "too little overlaps", what,
                   "Some all-reduces start later than they could, or are waited for too early. Start each "
                   "one in its own gradient's hook, and wait for none before backward() has returned.");
  }
  checker.proved(
      "a step takes the longer of backward and all-reduces, and one layer of the other: not their "
      "sum");
}

void show_step(const Seam& seam, Checker& checker) {
  const int world = checker.worlds({3}).front(), layers = 4;
  const double layer_us = world == 1 ? 10 : time_of_reductions(checker, world, layers) / layers;
  checker.show(timed_step(seam, checker, world, layers, layer_us, /*shows=*/true));
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 3, 4, 1})) {
    check_steps(
        seam, checker, "the plain net", [](uint64_t seed) { return make_mlp(kDim, 4, seed); }, world);
    check_steps(
        seam, checker, "the net with a tied weight", [](uint64_t seed) { return make_tied(kDim, seed); },
        world);
    check_steps(
        seam, checker, "the net with a frozen layer", [](uint64_t seed) { return make_frozen(kDim, seed); },
        world);
  }
  checker.proved("every gradient is averaged once in every step, the last layer's first");
  checker.proved(
      fmt::format("after each of {} steps all ranks have the weights of one process on the whole "
                  "batch, and the same bits",
                  kSteps));
  show_step(seam, checker);
  check_overlap(seam, checker);
}

}  // namespace lab::ddp
