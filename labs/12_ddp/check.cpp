#include "12_ddp/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lab/collectives.h"
#include "lab/replicas.h"

namespace lab::ddp {

namespace {

constexpr double kLatencyUs = 5, kUsPerByte = 0.01;

/// A model that the check trains. Replicas are equal: broadcasting is lesson 11's.
struct Kind {
  std::string name;
  std::shared_ptr<Net> (*make)(int64_t dim, uint64_t seed);
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"the plain net", [](int64_t dim, uint64_t seed) { return make_mlp(dim, 4, seed); }},
      {"the net with a tied weight", make_tied},
      {"the net with a frozen layer", make_frozen},
      {"the net with tied and frozen weights",
       [](int64_t dim, uint64_t seed) { return make_mixed(dim, 6, seed, seed); }},
  };
  return all;
}

std::shared_ptr<Net> make_deep(int64_t dim, uint64_t seed) {
  return make_mlp(dim, 17, seed);
}

int64_t trained_floats(const Net& net) {
  int64_t sum = 0;
  for (const auto& parameter : trainable_parameters(net)) sum += parameter.numel();
  return sum;
}

/// What backward is expected to bring first: later layers, whatever the order within one. A shared weight
/// comes with the first layer that has it.
void expect_backward_order(Checker& checker, const Job& job, const Net& net, const Reductions& reductions) {
  std::map<std::string, size_t> place;
  for (const auto& parameter : unique_parameters(net)) place.emplace(parameter.name, place.size());
  const auto layer = [](const std::string& name) { return name.substr(0, name.find('.')); };
  for (int s = 0; s < static_cast<int>(job.batches.size()); ++s) {
    for (int r = 0; r < job.world; ++r) {
      const auto all = reductions.of(r, s);
      for (size_t k = 1; k < all.size(); ++k) {
        const auto before = place.find(all[k - 1].parameter), now = place.find(all[k].parameter);
        if (before == place.end() || now == place.end()) continue;
        checker.expect(layer(now->first) == layer(before->first) || now->second < before->second,
                       "not backward's order",
                       fmt::format("step {}, rank {} of {}, {}: reduced {} after {}", s + 1, r, job.world,
                                   job.net_name, now->first, before->first),
                       "Backward computes the last layer's gradients first. Start each all-reduce in its "
                       "gradient's hook, not later in a loop of your own.");
      }
    }
  }
}

/// Every gradient goes through one all-reduce in every step, of the library's or in messages of the learner's
/// own.
void expect_once(Checker& checker, const Job& job, const Net& net, const Training& run) {
  const int64_t trained = trained_floats(net), steps = static_cast<int64_t>(job.batches.size());
  const auto parameters = static_cast<int64_t>(trainable_parameters(net).size());
  for (int s = 0; s < steps; ++s) {
    for (int r = 0; r < job.world; ++r) {
      const int64_t found = run.reductions.floats_of(r, s), calls = run.reductions.calls_of(r, s);
      const auto where = fmt::format("step {}, rank {} of {}, {}", s + 1, r, job.world, job.net_name);
      checker.expect(
          found == trained || calls == 0, "wrong floats reduced",
          fmt::format("{}: {} were reduced, {} are trained", where, counted(found, "float"), trained),
          "Reduce each gradient once, whole, and nothing else.");
      checker.expect(calls <= parameters, "too many all-reduces",
                     fmt::format("{}: {} all-reduces of {} gradients", where, calls, parameters),
                     "Each all-reduce pays a full latency. One for each gradient is enough.");
    }
  }
  int64_t sent = 0;
  for (int r = 0; r < job.world; ++r) sent += run.report.sent_bytes(r);
  const int64_t most = 8 * (job.world - 1) * steps * trained;
  checker.expect(sent <= most, "more than all-reduces",
                 fmt::format("{}, {}: {} bytes were sent in {} steps, at most {} are needed",
                             counted(job.world, "rank"), job.net_name, sent, steps, most),
                 "An all-reduce of S bytes sends 2 (P - 1) S in all, by the naive way and by the ring.");
}

/// What the log of all-reduces explains better than the gradients that came of it.
void expect_names(Checker& checker, const Job& job, const Training& run) {
  const auto& [history, reductions, report] = run;
  const bool is_worse = !report.problem.empty() && report.problem != "never waited";
  checker.expect(
      report.sent_messages(0) > 0 || job.world == 1 || is_worse, "nothing averaged",
      fmt::format("{}, {}: rank 0 sent nothing in any step", counted(job.world, "rank"), job.net_name),
      "The hook must start an all-reduce of parameter.grad(), for any number of ranks, and "
      "after_gradient() sets it only for as long as the object lives that it returns: keep that in "
      "a member.");
  const auto difference = reductions.first_difference(/*counts=*/false);
  checker.expect(
      difference.empty(), "orders differ", difference,
      "The k-th all-reduce of one rank meets the k-th of the others, whatever it holds. Start them "
      "in the order in which the gradients come: it is the same on all ranks.");
  for (size_t r = 0; r < history.reduced.size(); ++r) {
    for (size_t s = 0; s < history.reduced[r].size(); ++s) {
      const auto step = static_cast<int>(s), rank = static_cast<int>(r);
      const int64_t done = history.reduced[r][s], calls = reductions.calls_of(rank, step);
      const auto all = reductions.of(rank, step);
      checker.expect(std::none_of(all.begin(), all.end(), [](const auto& each) { return each.is_weight; }),
                     "weights averaged",
                     fmt::format("step {}, rank {} of {}, {}: all-reduce of a weight, not of its gradient",
                                 s + 1, r, job.world, job.net_name),
                     "Optimizers with a state of their own, such as momentum, keep one that differs by rank. "
                     "Average the gradients, then step.");
      checker.expect(history.updates[r][s] == 0 || done >= calls, "stepped too early",
                     fmt::format("step {}, rank {} of {}, {}: optimizer.step() was called when {} of {} "
                                 "all-reduces were over",
                                 s + 1, r, job.world, job.net_name, done, calls),
                     "start() only begins an all-reduce. Keep the Work of each, and wait() for all of them "
                     "after backward() and before optimizer.step().");
      std::map<std::string, int> times;
      for (const auto& each : all) ++times[each.parameter];
      for (const auto& [name, count] : times) {
        checker.expect(name.empty() || count == 1, "averaged twice",
                       fmt::format("step {}, rank {} of {}, {}: {} all-reduces of the gradient of {}", s + 1,
                                   r, job.world, job.net_name, count, name),
                       "One hook for each parameter, set once, in the constructor, and gone with the object. "
                       "net.parameters() lists a "
                       "tied parameter twice; trainable_parameters() does not.");
      }
    }
  }
}

/// Trains in a child and judges here. With `is_second` another object came and went before.
void check_job(const Seam& seam, Checker& checker, const Kind& kind, int world, int64_t dim, int steps,
               int64_t share, uint64_t salt, bool is_second = false) {
  const int64_t size = share * world + 5;
  const uint64_t seed = checker.draw(salt) % 1'000'000;
  const Job job{.net_name = kind.name,
                .make = [&](int) { return kind.make(dim, seed); },
                .world = world,
                .samples = make_samples(size, dim, checker.draw(salt + 1) % 1000),
                .batches = make_batches(checker, world, steps, share, size),
                .rates = {.learning_rate = 0.01 * static_cast<double>(checker.draw_between(salt + 2, 5, 15)),
                          .momentum = 0.1 * static_cast<double>(checker.draw_between(salt + 3, 5, 9))},
                .resets = checker.draw(salt + 4) % 2 == 0};
  checker.in_world(world);
  const auto run = checker.in_child([&] {
    return train_ranks(
        checker, job,
        [&](Rank& rank, Net& net) -> Step {
          if (is_second) seam.make(rank, net).reset();  // its hooks are gone with it
          return [&seam, learner = seam.make(rank, net)](auto& optimizer, const auto& input,
                                                         const auto& target) {
            return static_cast<double>(seam.train_step(learner.get(), optimizer, input, target));
          };
        },
        /*layer_us=*/10);
  });
  const auto net = job.make(0);
  expect_names(checker, job, run);
  checker.expect_no_problem(run.report);
  const auto truth = train_alone(*net, job.samples, job.batches, job.rates, &run.history);
  expect_parity(checker, job.net_name, *net, run.history, truth);
  expect_losses(checker, job.net_name, run.history, truth);
  expect_once(checker, job, *net, run);
  expect_backward_order(checker, job, *net, run.reductions);
}

void check_steps(const Seam& seam, Checker& checker) {
  for (const auto& kind : kinds()) {
    for (const int world : checker.worlds({3, 2, 4, 1})) check_job(seam, checker, kind, world, 8, 3, 3, 10);
  }
  checker.proved("every gradient is averaged once in every step, the last layer's first");
  checker.proved(
      "after each of 3 steps all ranks have the weights of one process on the whole batch, and the same "
      "bits");
  for (const int world : checker.worlds({5, 6, 7, 8, static_cast<int>(checker.draw_between(8, 9, 17))})) {
    const auto salt = 20 + 10 * static_cast<uint64_t>(world);
    check_job(seam, checker, kinds()[checker.draw(salt) % kinds().size()], world,
              checker.draw_between(salt, 2, 9), 2, checker.draw_between(salt + 1, 1, 7), salt);
  }
  check_job(seam, checker, kinds()[0], checker.worlds({3})[0], checker.draw_between(6, 65, 75), 2, 5, 200);
  check_job(seam, checker, kinds()[1], checker.worlds({2})[0], 2,
            static_cast<int>(checker.draw_between(7, 257, 290)), 2, 210);
  check_job(seam, checker, {"the net of 17 layers", make_deep}, checker.worlds({4})[0], 3, 2, 3, 220);
  checker.in_part("after another Ddp of the same net was destroyed");
  check_job(seam, checker, {"the plain net, after another Ddp of it was destroyed", kinds()[0].make},
            checker.worlds({3})[0], 4, 2, 3, 230, /*is_second=*/true);
  checker.in_part("");
  checker.proved("the same for worlds, models, shares and rates drawn from the seed, and over 256 steps");
}

/// Nothing grows from step to step: kept works, losses, gradients.
void check_memory(const Seam& seam, Checker& checker) {
  const auto [kept, needed] = checker.in_child([&] {
    const double of_learner = bytes_kept([&](Rank& rank, Net& net) -> Step {
      return [&seam, learner = seam.make(rank, net)](auto& optimizer, const auto& input, const auto& target) {
        return static_cast<double>(seam.train_step(learner.get(), optimizer, input, target));
      };
    });
    // What the simulated world itself keeps of everything that is started.
    const double of_world = bytes_kept([&](Rank& rank, Net& net) -> Step {
      return [&](auto& optimizer, const auto& input, const auto& target) {
        optimizer.zero_grad();
        torch::mse_loss(net.forward(input), target).backward();
        std::vector<Work> all;
        for (const auto& parameter : trainable_parameters(net))
          all.push_back(rank.start([parameter](Rank&) {}));
        for (auto& work : all) work.wait();
        return 0;
      };
    });
    return std::pair(of_learner, of_world);
  });
  checker.expect(
      kept - needed < 40, "memory grows",
      fmt::format("1 rank: each step leaves about {:.0f} bytes more than the step before", kept - needed),
      "Something is added in every step and never removed: clear the list of what you have waited "
      "for, and keep no losses and no gradients.");
}

/// A step on the virtual clock: `layers` layers of dim x dim, each of which takes `layer_us` in backward.
struct Setting {
  int world = 2, layers = 4;
  int64_t dim = 8;
};

/// The virtual time of all-reduces alone, of the last `layers` layers, as backward would start them.
double time_of_reductions(Checker& checker, const Setting& setting, int layers) {
  const auto dim = static_cast<size_t>(setting.dim);
  return checker.in_child([&] {  // they are the learner's own, perhaps
    const auto body = [&](Rank& rank) {
      std::vector<std::vector<float>> gradients;
      for (int i = 0; i < layers; ++i) {
        gradients.emplace_back(dim);
        gradients.emplace_back(dim * dim);
      }
      std::vector<Work> all;
      for (auto& gradient : gradients) {
        all.push_back(rank.start([&gradient](Rank& stream) { collectives().all_reduce(stream, gradient); }));
      }
      for (auto& work : all) work.wait();
    };
    return checker
        .run({.world = setting.world,
              .latency_us = kLatencyUs,
              .us_per_byte = kUsPerByte,
              .keep_events = false},
             body)
        .time_us;
  });
}

/// Steps of the learner's code on the virtual clock.
struct Timed {
  std::vector<double> ends;  ///< When each step was done on all ranks.
  Report report;
};
Timed timed_steps(const Seam& seam, Checker& checker, const Setting& setting, double layer_us, int steps,
                  bool shows) {
  const auto& [world, layers, dim] = setting;
  const auto samples = make_samples(3 * world, dim, 1);
  const auto batches = make_batches(checker, world, 1, 3, 3 * world);
  return checker.in_child([&] {
    Timed timed{.ends = std::vector<double>(static_cast<size_t>(steps))};
    std::vector<std::shared_ptr<Net>> nets;
    std::vector<std::shared_ptr<void>> learners(static_cast<size_t>(world));
    for (int r = 0; r < world; ++r) nets.push_back(make_mlp(dim, layers, 1));
    timed.report = checker.run(
        {.world = world, .latency_us = kLatencyUs, .us_per_byte = kUsPerByte, .keep_events = shows},
        [&](Rank& rank) {
          const auto r = static_cast<size_t>(rank.rank());
          auto optimizer = make_optimizer(*nets[r]);
          learners[r] = seam.make(rank, *nets[r]);
          nets[r]->before_backward_of = [&](int layer) {
            rank.note(fmt::format("backward of layer {}", layer));
            rank.compute(layer_us);
          };
          for (double& end : timed.ends) {
            seam.train_step(learners[r].get(), optimizer, samples.input_of(batches[0][r]),
                            samples.target_of(batches[0][r]));
            end = std::max(end, rank.now_us());
          }
          nets[r]->before_backward_of = nullptr;
        });
    return timed;
  });
}

struct Timing {
  Setting setting;
  double compute = 0, communication = 0, most = 0;
  double layer_compute = 0, layer_communication = 0;  ///< Of one layer.
  std::vector<double> times;                          ///< Of each step.
};

Timing time_steps(const Seam& seam, Checker& checker, const Setting& setting, double ratio) {
  Timing timing{.setting = setting,
                .communication = time_of_reductions(checker, setting, setting.layers),
                .layer_communication = time_of_reductions(checker, setting, 1)};
  timing.compute = ratio * timing.communication;
  timing.layer_compute = timing.compute / setting.layers;
  timing.most =
      std::max(timing.compute + timing.layer_communication, timing.communication + timing.layer_compute);
  timing.times = timed_steps(seam, checker, setting, timing.layer_compute, 2, /*shows=*/false).ends;
  timing.times[1] -= timing.times[0];
  return timing;
}

std::string table_of(const std::vector<Timing>& timings) {
  std::string text =
      "virtual us of a step\nranks  layers  backward  all-reduces  one after the other   yours  at most";
  for (const auto& row : timings) {
    text += fmt::format("\n{:>5}  {:>6}  {:>8.1f}  {:>11.1f}  {:>19.1f}  {:>6.1f}  {:>7.1f}",
                        row.setting.world, row.setting.layers, row.compute, row.communication,
                        row.compute + row.communication, row.times[0], row.most);
  }
  return text;
}

void expect_overlap(Checker& checker, const Timing& timing) {
  const auto& [world, layers, dim] = timing.setting;
  checker.in_world(world);
  for (size_t s = 0; s < timing.times.size(); ++s) {
    const double time = timing.times[s];
    const auto what = fmt::format(
        "{} ranks, {} layers: backward takes {:.1f} us and the all-reduces {:.1f}, of which one layer's are "
        "{:.1f} and {:.1f}; step {} of yours takes {:.1f}, expected at most {:.1f}",
        world, layers, timing.compute, timing.communication, timing.layer_compute, timing.layer_communication,
        s + 1, time, timing.most);
    const double hidden = timing.compute + timing.communication - time;
    checker.expect(hidden > 0.15 * std::min(timing.compute, timing.communication), "nothing overlaps", what,
                   "Backward and all-reduces take turns: somebody waits inside backward, or starts after "
                   "it. A hook must start its all-reduce and return at once; wait after backward().");
    checker.expect(time <= timing.most * 1.01, "too little overlaps", what,
                   "Some all-reduces start later than they could, or are waited for too early. Start each "
                   "one in its own gradient's hook, and wait for none before backward() has returned.");
  }
}

void check_overlap(const Seam& seam, Checker& checker) {
  std::vector<Timing> timings;
  for (const int world : checker.worlds({4, 2})) {
    if (world == 1) continue;  // there is nothing to send
    for (const double ratio : {1.0, 2.0, 0.5})
      timings.push_back(time_steps(seam, checker, {.world = world, .layers = 8}, ratio));
  }
  if (timings.empty()) return;
  checker.note(table_of(timings));
  for (const int world : checker.fresh_worlds(1, 3, 9)) {
    const auto salt = 300 + 10 * static_cast<uint64_t>(world);
    const Setting setting{.world = world,
                          .layers = static_cast<int>(checker.draw_between(salt, 3, 11)),
                          .dim = checker.draw_between(salt + 1, 5, 19)};
    timings.push_back(
        time_steps(seam, checker, setting, 0.1 * static_cast<double>(checker.draw_between(salt + 2, 5, 20))));
  }
  for (const auto& timing : timings) expect_overlap(checker, timing);
  checker.proved(
      "a step takes the longer of backward and all-reduces, and one layer of the other: not their "
      "sum");
}

void show_step(const Seam& seam, Checker& checker) {
  const Setting setting{.world = checker.worlds({3}).front()};
  const double layer_us =
      setting.world == 1 ? 10 : time_of_reductions(checker, setting, setting.layers) / setting.layers;
  checker.show(timed_steps(seam, checker, setting, layer_us, 1, /*shows=*/true).report);
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_steps(seam, checker);
  check_memory(seam, checker);
  show_step(seam, checker);
  check_overlap(seam, checker);
}

}  // namespace lab::ddp
