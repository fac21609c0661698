#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "13_bucketing/check_parts.h"
#include "lab/collectives.h"
#include "lab/replicas.h"

namespace lab::bucketing {

namespace {

constexpr const char* kLate =
    "Some buckets leave later than they could, or are waited for too early. When a gradient comes, send all "
    "buckets that are ready by then, perhaps several, and wait for none before finish().";
constexpr double kLatencyUs = 10, kUsPerByte = 0.01;

/// What is timed: layers of dim x dim and a bias, and how long each of them takes in backward.
struct Setting {
  int world = 4;
  int64_t dim = 8;
  std::vector<double> layer_us = std::vector<double>(16, 40);
  std::vector<size_t> order = {};  ///< In which layers are registered; empty: as they run.

  double compute() const { return std::accumulate(layer_us.begin(), layer_us.end(), 0.0); }
};

/// A model whose layers are registered in another order than they run.
struct Reordered : Net {
  explicit Reordered(const Setting& setting)
      : inner(make_mlp(setting.dim, static_cast<int>(setting.layer_us.size()), 1)) {
    inner->before_backward_of = [this](int layer) {
      if (before_backward_of) before_backward_of(layer);
    };
    const auto layers = inner->children();
    for (size_t i = 0; i < layers.size(); ++i) {
      const size_t k = setting.order.empty() ? i : setting.order[i];
      register_module(fmt::format("layer{}", k), layers[k]);
    }
  }
  torch::Tensor forward(const torch::Tensor& input) override { return inner->forward(input); }
  std::shared_ptr<Net> inner;
};

/// Buckets on the virtual clock.
struct Timing {
  int64_t cap = 0;
  size_t buckets = 0;
  double communication = 0;  ///< Of all buckets, one after the other.
  double ideal = 0;          ///< Of a step that sends each bucket when its last gradient has come.
  std::vector<double> steps;
  std::vector<double> could_begin, begun;  ///< When rank 0's all-reduces of the first step began.
};

/// Notes when all-reduces of rank 0 begin, for as long as it lives.
class Clock {
 public:
  explicit Clock(std::vector<double>& begun) : in_force_(collectives().all_reduce) {
    collectives().all_reduce = [this, &begun](Rank& rank, std::span<float> data) {
      if (rank.rank() == 0) begun.push_back(rank.now_us());
      in_force_(rank, data);
    };
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  ~Clock() { collectives().all_reduce = in_force_; }

 private:
  std::function<void(Rank&, std::span<float>)> in_force_;
};

/// Runs only what takes time: backward of each layer, if it `computes`, and the buckets' all-reduces.
double time_of_buckets(Checker& checker, const Setting& setting, const Buckets& buckets,
                       const std::vector<int64_t>& bytes, bool computes) {
  const auto layer_of = [&](size_t parameter) {
    return setting.order.empty() ? parameter / 2 : setting.order[parameter / 2];
  };
  const auto body = [&](Rank& rank) {
    std::vector<std::vector<float>> flat;
    for (const auto& bucket : buckets) flat.emplace_back(static_cast<size_t>(sum_of(bytes, bucket) / 4));
    std::vector<Work> all;
    for (size_t layer = setting.layer_us.size(); layer-- > 0;) {
      if (computes) rank.compute(setting.layer_us[layer]);
      const auto has_come = [&](size_t parameter) { return layer_of(parameter) >= layer; };
      while (all.size() < buckets.size() &&
             std::all_of(buckets[all.size()].begin(), buckets[all.size()].end(), has_come)) {
        auto& data = flat[all.size()];
        all.push_back(rank.start([&data](Rank& stream) { collectives().all_reduce(stream, data); }));
      }
    }
    for (auto& work : all) work.wait();
  };
  return checker
      .run(
          {.world = setting.world, .latency_us = kLatencyUs, .us_per_byte = kUsPerByte, .keep_events = false},
          body)
      .time_us;
}

/// Steps of the learner's code; `ends` gets the time at which each was done on all ranks.
Report timed_steps(const Seam& seam, Checker& checker, const Setting& setting, int64_t cap,
                   std::vector<double>& ends, bool shows) {
  const int world = setting.world;
  const auto samples = make_samples(3 * world, setting.dim, 1);
  const auto batches = make_batches(checker, world, 1, 3, 3 * world);
  std::vector<std::shared_ptr<Net>> nets;
  std::vector<Finish> learners(static_cast<size_t>(world));  // kept for what is never waited for
  for (int r = 0; r < world; ++r) nets.push_back(std::make_shared<Reordered>(setting));
  return checker.run(
      {.world = world, .latency_us = kLatencyUs, .us_per_byte = kUsPerByte, .keep_events = shows},
      [&](Rank& rank) {
        const auto r = static_cast<size_t>(rank.rank());
        auto optimizer = make_optimizer(*nets[r]);
        learners[r] = finish_of(seam, rank, *nets[r], cap);
        nets[r]->before_backward_of = [&](int layer) {
          rank.note(fmt::format("backward of layer {}", layer));
          rank.compute(setting.layer_us[static_cast<size_t>(layer)]);
        };
        for (double& end : ends) {
          step(learners[r], *nets[r], optimizer, samples.input_of(batches[0][r]),
               samples.target_of(batches[0][r]));
          end = std::max(end, rank.now_us());
        }
        nets[r]->before_backward_of = nullptr;
      });
}

/// The times of two steps with each cap.
std::vector<Timing> time_caps(const Seam& seam, Checker& checker, const Setting& setting,
                              const std::vector<int64_t>& caps) {
  checker.in_world(setting.world);
  const auto bytes = bytes_of(Reordered(setting));
  return checker.in_child([&] {
    std::vector<Timing> timings;
    for (const int64_t cap : caps) {
      const auto buckets = filled(bytes, cap);
      auto& timing = timings.emplace_back(
          Timing{.cap = cap, .buckets = buckets.size(), .steps = std::vector<double>(2)});
      timing.communication = time_of_buckets(checker, setting, buckets, bytes, /*computes=*/false);
      {
        const Clock clock(timing.could_begin);
        timing.ideal = time_of_buckets(checker, setting, buckets, bytes, /*computes=*/true);
      }
      const Clock clock(timing.begun);
      timed_steps(seam, checker, setting, cap, timing.steps, /*shows=*/false);
      timing.steps[1] -= timing.steps[0];
    }
    return timings;
  });
}

std::string table_of(const std::vector<Timing>& timings, const Setting& setting) {
  const double compute = setting.compute();
  const size_t layers = setting.layer_us.size();
  std::string text = fmt::format(
      "virtual us of a step: {} ranks, {} layers, {} parameters, backward {:.0f}\n{:>10}  {:>8}  {:>13}  "
      "{:>6}  "
      "{:>7}",
      setting.world, layers, 2 * layers, compute, "cap bytes", "messages", "communication", "step",
      "exposed");
  for (const auto& row : timings) {
    text += fmt::format("\n{:>10}  {:>8}  {:>13.1f}  {:>6.1f}  {:>7.1f}",
                        row.cap == 0 ? "no buckets" : fmt::format("{}", row.cap), row.buckets,
                        row.communication, row.steps[0], row.steps[0] - compute);
  }
  return text;
}

void expect_overlap(Checker& checker, const Setting& setting, const std::vector<Timing>& timings) {
  const double compute = setting.compute();
  for (const auto& timing : timings) {
    for (size_t s = 0; s < timing.steps.size(); ++s) {
      const double time = timing.steps[s], all = compute + timing.communication;
      const auto what = fmt::format(
          "step {}, {} ranks, {} layers of {} bytes, a cap of {} bytes: backward takes {:.1f} us and the "
          "all-reduces {:.1f}; the step took {:.1f}, expected {:.1f}",
          s + 1, setting.world, setting.layer_us.size(), 4 * setting.dim * (setting.dim + 1), timing.cap,
          compute, timing.communication, time, timing.ideal);
      const bool overlaps = timing.ideal > 0.97 * all || time < all - 0.5 * (all - timing.ideal);
      checker.expect(overlaps || s == 0, "buckets not reset", what,
                     "The first step overlaps, the next does not: its buckets were never complete before "
                     "finish(). Let each of them wait for all its gradients again, no more and no fewer.");
      checker.expect(
          overlaps, "nothing overlaps", what,
          "The buckets leave after backward, or backward waits for them. Send each one in "
          "gradient_came(), as "
          "soon as its last gradient is there, in every step, and wait for none before finish(). Does every "
          "parameter have a hook, for as long as the Bucketer lives?");
      checker.expect(time <= timing.ideal * 1.02, "too little overlaps", what, kLate);
    }
    for (size_t b = 0; b < timing.could_begin.size(); ++b) {
      checker.expect(
          timing.begun[b] <= timing.could_begin[b] * 1.02, "too little overlaps",
          fmt::format("step 1, rank 0 of {}, a cap of {} bytes: the all-reduce of bucket {} began at "
                      "{:.1f} us, and could have at {:.1f}",
                      setting.world, timing.cap, b, timing.begun[b], timing.could_begin[b]),
          kLate);
    }
  }
}

void show_step(const Seam& seam, Checker& checker) {
  const Setting setting{.world = checker.worlds({3}).front(), .layer_us = std::vector<double>(6, 30)};
  checker.in_world(setting.world);
  checker.show(checker.in_child([&] {
    std::vector<double> ends(1);
    return timed_steps(seam, checker, setting, 576, ends, /*shows=*/true);
  }));
}

}  // namespace

void check_time(const Seam& seam, Checker& checker) {
  show_step(seam, checker);
  const Setting setting{.world = checker.worlds({4}).front()};
  if (setting.world == 1) return;  // there is nothing to send
  const auto timings = time_caps(seam, checker, setting, {0, 288, 576, 1152, 2304, 4608});
  checker.note(table_of(timings, setting));
  expect_overlap(checker, setting, timings);
  for (const int world : checker.fresh_worlds(1, 5, 9)) {
    const auto salt = 700 + 20 * static_cast<uint64_t>(world);
    const auto layers = static_cast<size_t>(checker.draw_between(salt, 6, 10));
    Setting drawn{.world = world, .dim = checker.draw_between(salt + 1, 5, 13), .layer_us = {}};
    // Backward is fast at first and slow at last: who waits in between loses time.
    for (size_t i = 0; i < layers; ++i)
      drawn.layer_us.push_back(static_cast<double>(i < layers / 2
                                                       ? checker.draw_between(salt + 2 + i, 150, 400)
                                                       : checker.draw_between(salt + 2 + i, 3, 30)));
    const int64_t layer_bytes = 4 * drawn.dim * (drawn.dim + 1);
    if (world ==
        7) {  // the third layer is registered last, so that all others are complete before its bucket
      drawn.order.resize(layers);
      std::iota(drawn.order.begin(), drawn.order.end(), 0);
      std::rotate(drawn.order.begin() + 2, drawn.order.begin() + 3, drawn.order.end());
    }
    const int64_t cap = checker.draw_between(salt + 18, layer_bytes, 3 * layer_bytes);
    expect_overlap(checker, drawn, time_caps(seam, checker, drawn, {0, cap}));
  }
  const auto best = std::min_element(timings.begin(), timings.end(),
                                     [](const auto& a, const auto& b) { return a.steps[0] < b.steps[0]; });
  checker.proved("each bucket leaves when its last gradient has come: steps take as long as they must");
  if (best != timings.begin() && best + 1 != timings.end()) {
    checker.proved(
        fmt::format("on the virtual clock buckets of {} bytes beat both a message for each gradient "
                    "and one bucket for all",
                    best->cap));
  }
}

}  // namespace lab::bucketing
