#include "13_bucketing/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "lab/collectives.h"
#include "lab/replicas.h"

namespace lab::bucketing {

namespace {

constexpr int64_t kDim = 8, kShare = 3;
constexpr int kSteps = 3;
constexpr int64_t kLayerBytes = (kDim * kDim + kDim) * 4;
constexpr double kLatencyUs = 10, kUsPerByte = 0.01;

using Buckets = std::vector<std::vector<size_t>>;

std::vector<int64_t> bytes_of(const Net& net) {
  std::vector<int64_t> bytes;
  for (const auto& parameter : trainable_parameters(net)) bytes.push_back(parameter.numel() * 4);
  return bytes;
}

int64_t sum_of(const std::vector<int64_t>& bytes, const std::vector<size_t>& bucket) {
  int64_t sum = 0;
  for (const size_t i : bucket) sum += bytes[i];
  return sum;
}

void check_filled(const Seam& seam, Checker& checker, const std::vector<int64_t>& bytes, int64_t cap) {
  const Buckets buckets = seam.fill_buckets(bytes, cap);
  const auto input = fmt::format("gradients of {} bytes with a cap of {}", fmt::join(bytes, ", "), cap);
  const auto found = fmt::format("{}: buckets {}", input, buckets);
  checker.expect(!buckets.empty(), "no buckets", input + ": fill_buckets returned none",
                 "Open a bucket, go through the parameters from the last to the first, and open another one "
                 "whenever the next does not fit.");
  std::vector<int> times(bytes.size());
  std::vector<size_t> order;
  for (const auto& bucket : buckets) {
    checker.expect(!bucket.empty(), "empty bucket", found,
                   "A bucket that holds nothing would still be sent. Open one only when there is a parameter "
                   "to put into it.");
    for (const size_t i : bucket) {
      checker.expect(i < bytes.size(), "no such parameter", found,
                     fmt::format("There is no parameter {}: they go from 0 to {}.", i, bytes.size() - 1));
      ++times[i];
      order.push_back(i);
    }
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    checker.expect(times[i] > 0, "parameter in no bucket",
                   fmt::format("{}; parameter {} is in none", found, i),
                   "Its gradient would never be averaged, and replicas would drift apart. The last bucket "
                   "counts even if it is not full.");
    checker.expect(times[i] == 1, "parameter in two buckets",
                   fmt::format("{}; parameter {} is in {}", found, i, times[i]),
                   "Each gradient is sent once: put it into one bucket, then go on to the next parameter.");
  }
  checker.expect(std::is_sorted(order.rbegin(), order.rend()), "not in reverse order", found,
                 "Backward brings the last layer's gradients first. Buckets that hold the first layer's come "
                 "last: go from the last parameter to the first.");
  for (size_t b = 0; b < buckets.size(); ++b) {
    checker.expect(buckets[b].size() == 1 || sum_of(bytes, buckets[b]) <= cap, "bucket over the cap",
                   fmt::format("{}; bucket {} holds {} bytes", found, b, sum_of(bytes, buckets[b])),
                   "A gradient that does not fit opens the next bucket. One that is larger than the cap gets "
                   "a bucket of its own.");
    checker.expect(
        b == 0 || sum_of(bytes, buckets[b - 1]) + bytes[buckets[b][0]] > cap, "buckets not filled",
        fmt::format("{}; parameter {} would have fitted into bucket {}", found, buckets[b][0], b - 1),
        "Open a new bucket only if the next gradient does not fit into the open one.");
  }
}

void check_fill(const Seam& seam, Checker& checker) {
  checker.in_world(0);
  check_filled(seam, checker, {256, 32, 256, 32, 256, 32}, 600);
  check_filled(seam, checker, {256, 32, 256, 32, 256, 32}, 576);  // exactly full
  check_filled(seam, checker, {32, 32, 4096, 32, 32}, 100);       // one larger than the cap
  check_filled(seam, checker, {4096, 32, 32}, 100);
  check_filled(seam, checker, {8, 16, 24}, 0);
  check_filled(seam, checker, {8, 16, 24}, 1 << 20);
  check_filled(seam, checker, {8}, 100);
  for (uint64_t round = 0; round < 20; ++round) {
    std::vector<int64_t> bytes;
    for (uint64_t i = 0; i <= checker.draw(round) % 12; ++i)
      bytes.push_back(static_cast<int64_t>(4 + 4 * (checker.draw(1000 + round * 20 + i) % 50)));
    check_filled(seam, checker, bytes, static_cast<int64_t>(checker.draw(500 + round) % 400));
  }
  checker.proved(
      "every parameter is in one bucket, from the last to the first, each as full as the cap lets");
}

/// A step as the learner's code sees it.
double step(const Seam& seam, void* bucketer, Net& net, torch::optim::Optimizer& optimizer,
            const torch::Tensor& input, const torch::Tensor& target) {
  optimizer.zero_grad();
  const auto loss = torch::mse_loss(net.forward(input), target);
  loss.backward();
  seam.finish(bucketer);
  optimizer.step();
  return loss.item<double>();
}

/// Messages and floats of every step: those of the buckets, in all steps the same.
void expect_counts(Checker& checker, const std::string& net_name, const Reductions& log, int world,
                   const std::vector<int64_t>& bytes, int64_t buckets, bool has_ended) {
  const int64_t floats = std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) / 4;
  for (int s = 0; s < kSteps; ++s) {
    for (int r = 0; r < world; ++r) {
      const int64_t calls = log.calls_of(r, s), found = log.floats_of(r, s);
      if (!has_ended && calls <= buckets && found <= floats) continue;  // another problem came before
      const auto what = fmt::format(
          "step {}, rank {} of {}, {}: {} all-reduces of together {} floats; there are {} buckets of "
          "together "
          "{} floats",
          s + 1, r, world, net_name, calls, found, buckets, floats);
      checker.expect(calls == buckets || s > 0, "messages are not buckets", what,
                     "One all-reduce for each bucket: when the last of its gradients has come, not before, "
                     "and only once.");
      checker.expect(calls == buckets, "buckets not reset", what,
                     "The first step was right. After each step every bucket must again wait for all its "
                     "gradients, and be sent again: set the counters back.");
      checker.expect(found == floats || s == 0, "bytes grow", what,
                     "The buckets hold more than in the first step: what was copied into them then is still "
                     "there. Empty a bucket before you fill it.");
      checker.expect(found == floats, "wrong floats reduced", what,
                     "A bucket holds each of its gradients once, whole, and nothing else.");
    }
  }
}

/// What finish() left as it was, in the first step.
void expect_nothing_left(Checker& checker, const std::string& net_name, const Net& net,
                         const History& history, const std::vector<TrueStep>& truth, const Reductions& log,
                         int64_t buckets) {
  const auto world = static_cast<int>(history.weights.size());
  for (int r = 0; r < world && world > 1; ++r) {
    const bool has_stepped = history.weights[static_cast<size_t>(r)].size() > 1;
    const int64_t calls = log.calls_of(r, 0);
    auto own = left_behind(net, history, truth, 0, r);
    if (!has_stepped || (own.empty() && calls >= buckets)) continue;
    const size_t count = own.size();
    if (count > 4) own.resize(4);
    checker.fail(
        "gradients left behind",
        fmt::format("step 1, rank {} of {}, {}: finish() returned after {} of {} buckets had been "
                    "reduced; {} of {} gradients are this rank's own{}{}{}",
                    r, world, net_name, calls, buckets, count, trainable_parameters(net).size(),
                    count > 0 ? ": " : "", fmt::join(own, ", "), count > 4 ? ", ..." : ""),
        "A bucket was never sent, or its mean never put back. A bucket is complete when all its "
        "gradients have come, not when it holds so many bytes: the last one is seldom full. And what "
        "is not complete after backward must be sent then.");
  }
}

struct Setup {
  std::string name;
  std::shared_ptr<Net> (*make)(uint64_t seed);
  int64_t cap_bytes;
  bool is_two_sided;
};

void check_steps(const Seam& seam, Checker& checker, const Setup& setup, int world) {
  const int64_t size = kShare * world + 6;
  const uint64_t data_seed = checker.draw(1) % 1000, seed = checker.draw(2) % 1'000'000;
  const auto samples = setup.is_two_sided ? make_two_sided_samples(size, kDim, data_seed)
                                          : make_samples(size, kDim, data_seed);
  const auto batches = setup.is_two_sided ? one_sided_batches(samples, world, kSteps)
                                          : make_batches(checker, world, kSteps, kShare, size);

  const Job job{.net_name = setup.name,
                .make = [&](int) { return setup.make(seed); },
                .world = world,
                .samples = samples,
                .batches = batches};
  checker.in_world(world);
  const auto [history, log, report] = checker.in_child([&] {
    return train_ranks(
        checker, job,
        [&](Rank& rank, Net& net) -> Step {
          return [&, learner = seam.make(rank, net, setup.cap_bytes)](auto& optimizer, const auto& input,
                                                                      const auto& target) {
            return step(seam, learner.get(), net, optimizer, input, target);
          };
        },
        /*layer_us=*/10);
  });
  const auto net = setup.make(seed);
  const auto truth = train_alone(*setup.make(seed), samples, batches, job.rates, &history);
  const auto bytes = bytes_of(*net);
  const auto buckets = static_cast<int64_t>(seam.fill_buckets(bytes, setup.cap_bytes).size());
  const bool has_ended = report.problem.empty();
  const bool is_not_waited = report.problem == "never waited" || report.problem == "buffer changed";

  checker.expect(
      log.calls_of(0, 0) > 0 || !has_ended, "nothing averaged",
      fmt::format("step 1, {} ranks: rank 0 made no all-reduce", world),
      "gradient_came() counts down and sends a bucket whose last gradient has come; finish() sends "
      "what is left.");
  if (setup.is_two_sided && report.problem == "exception") {
    checker.fail("missing gradient", report.what,
                 "In this step one rank has no sample for one of the experts, so that a bucket is never "
                 "complete there. finish() must send it all the same, with zeros for what is undefined.");
  }
  if (!is_not_waited) {
    expect_nothing_left(checker, setup.name, *net, history, truth, log, buckets);
    const auto difference = log.first_difference(/*counts=*/false);
    checker.expect(
        difference.empty(), "orders differ", difference,
        "A bucket whose gradients have all come must still wait for the buckets before it: on "
        "another rank they may be complete earlier. Send by number: next_ tells which one is next.");
  }
  expect_counts(checker, setup.name, log, world, bytes, buckets, has_ended);
  checker.expect_no_problem(report);
  expect_parity(checker, setup.name, *net, history, truth);
}

/// Buckets on the virtual clock.
struct Timing {
  int64_t cap = 0;
  size_t buckets = 0;
  double communication = 0;  ///< Of all buckets, one after the other.
  double ideal = 0;          ///< Of a step that sends each bucket when its last gradient has come.
  std::vector<double> steps;
};

/// Runs only what takes time: backward of each layer, if `layer_us` is positive, and the buckets'
/// all-reduces.
double time_of_buckets(Checker& checker, int world, int layers, const Buckets& buckets,
                       const std::vector<int64_t>& bytes, double layer_us) {
  const auto body = [&](Rank& rank) {
    std::vector<std::vector<float>> flat;
    for (const auto& bucket : buckets) flat.emplace_back(static_cast<size_t>(sum_of(bytes, bucket) / 4));
    std::vector<Work> all;
    for (int layer = layers - 1; layer >= 0; --layer) {
      if (layer_us > 0) rank.compute(layer_us);
      while (all.size() < buckets.size() && buckets[all.size()].back() / 2 >= static_cast<size_t>(layer)) {
        auto& data = flat[all.size()];
        all.push_back(rank.start([&data](Rank& stream) { collectives().all_reduce(stream, data); }));
      }
    }
    for (auto& work : all) work.wait();
  };
  return checker
      .run({.world = world, .latency_us = kLatencyUs, .us_per_byte = kUsPerByte, .keep_events = false}, body)
      .time_us;
}

/// Steps of the learner's code; `ends` gets the time at which each was done on all ranks.
Report timed_steps(const Seam& seam, Checker& checker, int world, int layers, int64_t cap, double layer_us,
                   std::vector<double>& ends, bool shows) {
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
        learners[r] = seam.make(rank, *nets[r], cap);
        nets[r]->before_backward_of = [&](int layer) {
          rank.note(fmt::format("backward of layer {}", layer));
          rank.compute(layer_us);
        };
        for (double& end : ends) {
          step(seam, learners[r].get(), *nets[r], optimizer, samples.input_of(batches[0][r]),
               samples.target_of(batches[0][r]));
          end = std::max(end, rank.now_us());
        }
        nets[r]->before_backward_of = nullptr;
      });
}

std::string table_of(const std::vector<Timing>& timings, int world, int layers, double compute) {
  std::string text = fmt::format(
      "virtual us of a step: {} ranks, {} layers, {} parameters, backward {:.0f}\n{:>10}  {:>8}  {:>13}  "
      "{:>6}  "
      "{:>7}",
      world, layers, 2 * layers, compute, "cap bytes", "messages", "communication", "step", "exposed");
  for (const auto& row : timings) {
    text += fmt::format("\n{:>10}  {:>8}  {:>13.1f}  {:>6.1f}  {:>7.1f}",
                        row.cap == 0 ? "no buckets" : fmt::format("{}", row.cap), row.buckets,
                        row.communication, row.steps[0], row.steps[0] - compute);
  }
  return text;
}

void check_time(const Seam& seam, Checker& checker) {
  const int world = checker.worlds({4}).front(), layers = 16;
  if (world == 1) return;  // there is nothing to send
  const double layer_us = 40, compute = layers * layer_us;
  const auto bytes = bytes_of(*make_mlp(kDim, layers, 1));
  std::vector<Timing> timings;
  for (const int64_t cap :
       {int64_t{0}, kLayerBytes, 2 * kLayerBytes, 4 * kLayerBytes, 8 * kLayerBytes, 16 * kLayerBytes}) {
    const auto buckets = seam.fill_buckets(bytes, cap);
    Timing timing{.cap = cap, .buckets = buckets.size(), .steps = std::vector<double>(2)};
    timing.communication = time_of_buckets(checker, world, layers, buckets, bytes, 0);
    timing.ideal = time_of_buckets(checker, world, layers, buckets, bytes, layer_us);
    timed_steps(seam, checker, world, layers, cap, layer_us, timing.steps, /*shows=*/false);
    timing.steps[1] -= timing.steps[0];
    timings.push_back(timing);
  }
  checker.note(table_of(timings, world, layers, compute));
  for (const auto& timing : timings) {
    for (size_t s = 0; s < timing.steps.size(); ++s) {
      const double time = timing.steps[s], all = compute + timing.communication;
      const auto what = fmt::format(
          "step {}, {} ranks, a cap of {} bytes: backward takes {:.1f} us and the all-reduces {:.1f}; the "
          "step "
          "took {:.1f}, expected {:.1f}",
          s + 1, world, timing.cap, compute, timing.communication, time, timing.ideal);
      const bool overlaps = timing.ideal > 0.97 * all || time < all - 0.5 * (all - timing.ideal);
      checker.expect(overlaps || s == 0, "buckets not reset", what,
                     "The first step overlaps, the next does not: its buckets were never complete before "
                     "finish(). Let each of them wait for all its gradients again, no more and no fewer.");
      checker.expect(
          overlaps, "nothing overlaps", what,
          "The buckets leave after backward. Send each one in gradient_came(), as soon as its last "
          "gradient is there, in every step, and wait for none before finish().");
      checker.expect(time <= timing.ideal * 1.02, "too little overlaps", what,
                     "Some buckets leave later than they could, or are waited for too early.");
    }
  }
  const auto best = std::min_element(timings.begin(), timings.end(),
                                     [](const auto& a, const auto& b) { return a.steps[0] < b.steps[0]; });
  if (best != timings.begin() && best + 1 != timings.end()) {
    checker.proved(
        fmt::format("on the virtual clock buckets of {} bytes beat both a message for each gradient "
                    "and one bucket for all",
                    best->cap));
  }
}

void show_step(const Seam& seam, Checker& checker) {
  const int world = checker.worlds({3}).front(), layers = 6;
  std::vector<double> ends(1);
  checker.show(timed_steps(seam, checker, world, layers, 2 * kLayerBytes, 30, ends, /*shows=*/true));
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_fill(seam, checker);
  const std::vector<Setup> setups = {
      {"the net of 17 layers", [](uint64_t seed) { return make_mlp(kDim, 17, seed); }, 4 * kLayerBytes,
       false},
      {"the net with a tied weight", [](uint64_t seed) { return make_tied(kDim, seed); }, 100, false},
      {"the net with a frozen layer", [](uint64_t seed) { return make_frozen(kDim, seed); }, 100'000, false},
      // Its buckets have different sizes, and the first layer's is complete where the one before it is not.
      {"the net with two experts", [](uint64_t seed) { return make_experts(kDim, seed); }, 544, true},
  };
  for (const auto& setup : setups)
    for (const int world : checker.worlds({2, 3, 4, 1})) check_steps(seam, checker, setup, world);
  checker.proved("in every step there are as many all-reduces as buckets, with the same bytes");
  checker.proved(
      fmt::format("after each of {} steps all ranks have the weights of one process on the whole "
                  "batch, also if one rank lacks a gradient",
                  kSteps));
  show_step(seam, checker);
  check_time(seam, checker);
}

}  // namespace lab::bucketing
