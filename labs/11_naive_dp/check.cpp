#include "11_naive_dp/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "11_naive_dp/kinds.h"
#include "lab/replicas.h"

namespace lab::naive_dp {

namespace {

int64_t floats_of(const std::vector<torch::Tensor>& tensors) {
  int64_t sum = 0;
  for (const auto& tensor : tensors) sum += tensor.numel();
  return sum;
}

/// Those that no text shows: up to 8 ranks all, and one above.
std::vector<int> fresh_worlds_of(const Checker& checker) {
  return checker.worlds({5, 6, 7, 8, static_cast<int>(checker.draw_between(11, 9, 17))});
}

/// What a broadcast left: each rank's weights.
struct Broadcast {
  std::vector<Values> weights;
  Report report;
};

void expect_broadcast(Checker& checker, const Replicas& replicas, const Broadcast& found) {
  const int world = replicas.world;
  checker.in_world(world);
  checker.expect_no_problem(found.report);
  const auto first = replicas.make(checker, 0);
  const auto parameters = unique_parameters(*first);
  const auto is_same = [](const torch::Tensor& one, const torch::Tensor& other) {
    return std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) == 0;
  };
  for (int r = 0; r < world; ++r) {
    const auto own = weights_of(*replicas.make(checker, r));
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& weight = found.weights[static_cast<size_t>(r)][i];
      const auto& parameter = parameters[i];
      if (is_same(weight, parameter.tensor)) continue;
      const auto where =
          fmt::format("rank {} of {}, {} of {}", r, world, parameter.name, replicas.kind->name);
      if (r == 0) {
        checker.fail("rank 0's weights changed", where + " is not what it was before the broadcast",
                     "Rank 0 is the root: its weights are the ones that all shall have. An average of "
                     "all is not what anybody initialised.");
      }
      if (!parameter.tensor.requires_grad()) {
        checker.fail("frozen weights differ", where + " is not rank 0's",
                     "A frozen parameter is never stepped, but it takes part in forward: it must be the "
                     "same on all ranks, too.");
      }
      checker.fail("replicas differ",
                   where + (is_same(weight, own[i]) ? " still holds this rank's own initial weights"
                                                    : " holds neither its own weights nor rank 0's"),
                   "Each rank starts from a seed of its own. Broadcast every parameter from rank 0 "
                   "before the first step: gradients of different models are no use to each other.");
    }
  }
  int64_t sent = 0;
  for (int r = 0; r < world; ++r) sent += found.report.sent_bytes(r);
  const int64_t needed = (world - 1) * 4 * floats_of(first->parameters());
  checker.expect(
      sent <= needed, "more than a broadcast",
      fmt::format("{}, {}: {} bytes were sent; a copy of every parameter for every other rank is {}",
                  counted(world, "rank"), replicas.kind->name, sent, needed),
      "Every rank needs rank 0's weights once, and nobody needs those of the others.");
}

void check_broadcast(const Seam& seam, Checker& checker) {
  std::vector<Replicas> all;
  for (const auto& kind : kinds()) {
    for (const int world : checker.worlds({2, 3, 4, 1})) all.push_back({&kind, world, 8});
  }
  for (const int world : fresh_worlds_of(checker)) {
    const auto salt = 20 + static_cast<uint64_t>(world);
    all.push_back({&kinds()[checker.draw(salt) % kinds().size()], world, checker.draw_between(salt, 3, 21)});
  }
  all.push_back({kinds().data(), checker.worlds({3})[0], checker.draw_between(10, 65, 75)});
  const auto found = checker.in_child([&] {
    std::vector<Broadcast> done;
    for (const auto& replicas : all) {
      std::vector<std::shared_ptr<Net>> nets;
      for (int r = 0; r < replicas.world; ++r) nets.push_back(replicas.make(checker, r));
      auto report = run_world(
          {.world = replicas.world, .seed = checker.seed(), .keep_events = false},
          [&](Rank& rank) { seam.broadcast_weights(rank, *nets[static_cast<size_t>(rank.rank())]); });
      auto& one = done.emplace_back();
      for (const auto& net : nets) one.weights.push_back(weights_of(*net));
      one.report = std::move(report);
    }
    return done;
  });
  for (size_t i = 0; i < all.size(); ++i) expect_broadcast(checker, all[i], found[i]);
  checker.proved("all ranks start with rank 0's weights, the frozen ones too");
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

/// How many floats each rank has reduced in each step, as far as that explains something by name.
void expect_names(Checker& checker, const Job& job, const Net& net, const Reductions& reductions) {
  int64_t frozen = 0, listed = 0;
  const int64_t trained = floats_of(trainable_parameters(net));
  for (const auto& parameter : net.parameters())
    (parameter.requires_grad() ? listed : frozen) += parameter.numel();
  for (size_t s = 0; s < job.batches.size(); ++s) {
    for (int r = 0; r < job.world; ++r) {
      const int64_t found = reductions.floats_of(r, static_cast<int>(s));
      const auto what =
          fmt::format("step {}, rank {} of {}: {} were reduced for {}, which has {} that are trained", s + 1,
                      r, job.world, counted(found, "float"), job.net_name, trained);
      checker.expect(listed == trained || found != listed, "tied weight averaged twice", what,
                     "parameters() lists a weight as often as layers share it; it has one gradient. Skip a "
                     "parameter that is_same() as one before. Summed twice and divided once it would even be "
                     "world_size times too large.");
      checker.expect(frozen == 0 || found != trained + frozen, "frozen parameter reduced", what,
                     "A parameter whose requires_grad() is false has no gradient: nobody needs its zeros.");
    }
  }
}

/// What was sent, by the library's all-reduce or by messages of the learner's own.
void expect_costs(Checker& checker, const Job& job, const Net& net, const Training& run) {
  const auto trained = trainable_parameters(net);
  const int64_t needed = floats_of(trained), steps = static_cast<int64_t>(job.batches.size());
  for (int s = 0; s < steps; ++s) {
    for (int r = 0; r < job.world; ++r) {
      const int64_t found = run.reductions.floats_of(r, s), calls = run.reductions.calls_of(r, s);
      const auto where = fmt::format("step {}, rank {} of {}, {}", s + 1, r, job.world, job.net_name);
      checker.expect(
          found == needed || calls == 0, "wrong floats reduced",
          fmt::format("{}: {} were reduced, {} are trained", where, counted(found, "float"), needed),
          "Reduce each gradient once, whole, and nothing else.");
      checker.expect(calls <= static_cast<int64_t>(trained.size()), "too many all-reduces",
                     fmt::format("{}: {} all-reduces for {} gradients", where, calls, trained.size()),
                     "Each all-reduce pays a full latency. One for each gradient is enough.");
    }
  }
  int64_t sent = 0;
  for (int r = 0; r < job.world; ++r) sent += run.report.sent_bytes(r);
  const int64_t most = 8 * (job.world - 1) * (floats_of(net.parameters()) + steps * needed);
  checker.expect(sent <= most, "more than all-reduces",
                 fmt::format("{}, {}: {} bytes were sent in {} steps, at most {} are needed",
                             counted(job.world, "rank"), job.net_name, sent, steps, most),
                 "An all-reduce of S bytes sends 2 (P - 1) S in all, by the naive way and by the ring.");
}

/// Trains in a child and judges here.
Training check_job(const Seam& seam, Checker& checker, const Replicas& replicas, Job job) {
  const bool is_experts = replicas.kind == &kinds().back();
  job.net_name = replicas.kind->name;
  job.world = replicas.world;
  job.make = [&](int rank) { return replicas.make(checker, rank); };
  checker.in_world(job.world);
  auto run = checker.in_child([&] {
    return train_ranks(checker, job, [&](Rank& rank, Net& net) -> Step {
      seam.broadcast_weights(rank, net);
      return [&](auto& optimizer, const auto& input, const auto& target) {
        return static_cast<double>(seam.train_step(rank, net, optimizer, input, target));
      };
    });
  });
  const auto& problem = run.report.problem;
  const auto difference =
      run.reductions.first_difference(/*counts=*/!problem.empty() && problem != "exception");
  const bool is_undefined = run.report.what.find("undefined") != std::string::npos;
  if (is_experts && (!difference.empty() || is_undefined)) {
    checker.fail(is_undefined ? "missing gradient" : "missing gradient skipped",
                 is_undefined ? run.report.what : difference,
                 "In this step one rank has no sample for one of the experts: its gradient is undefined "
                 "there, and defined elsewhere. All ranks must make the same all-reduces in the same order: "
                 "let an undefined gradient count as zeros.");
  }
  checker.expect(difference.empty(), "orders differ", difference,
                 "All ranks must reduce the same gradients in the same order: the world matches calls by "
                 "their order, not by their names.");
  checker.expect_no_problem(run.report);
  const auto net = job.make(0);
  const auto truth = train_alone(*net, job.samples, job.batches, job.rates, &run.history);
  expect_names(checker, job, *net, run.reductions);
  expect_parity(checker, job.net_name, *net, run.history, truth);
  expect_losses(checker, job.net_name, run.history, truth);
  expect_costs(checker, job, *net, run);
  return run;
}

/// `steps` steps on shares of `share` samples.
Job job_of(const Checker& checker, const Replicas& replicas, int steps, int64_t share, uint64_t salt) {
  const int64_t size = share * replicas.world + 2 * share + 2;
  const uint64_t seed = checker.draw(salt) % 1000;
  Job job{.rates = {.learning_rate = 0.01 * static_cast<double>(checker.draw_between(salt + 1, 5, 15)),
                    .momentum = 0.1 * static_cast<double>(checker.draw_between(salt + 2, 5, 9))}};
  job.resets = replicas.kind == &kinds().back();  // one of its gradients is undefined in every step
  if (job.resets) {
    job.samples = make_two_sided_samples(size, replicas.dim, seed);
    job.batches = one_sided_batches(job.samples, replicas.world, steps, share);
  } else {
    job.samples = make_samples(size, replicas.dim, seed);
    job.batches = make_batches(checker, replicas.world, steps, share, size);
  }
  return job;
}

void check_steps(const Seam& seam, Checker& checker) {
  const int steps = 4;
  for (const auto& kind : kinds()) {
    for (const int world : checker.worlds({3, 2, 4, 1})) {
      const Replicas replicas{&kind, world, 8};
      check_job(seam, checker, replicas, job_of(checker, replicas, steps, 3, 200));
    }
  }
  checker.proved(
      fmt::format("after each of {} steps all ranks have the weights of one process on the whole "
                  "batch, and the same bits",
                  steps));
  checker.proved("a tied weight is averaged once, a frozen one never, a missing gradient counts as zeros");
  for (const int world : fresh_worlds_of(checker)) {
    for (const size_t of : {checker.draw(210) % 4, kinds().size() - 1}) {
      const auto salt = 220 + static_cast<uint64_t>(world) + of;
      const Replicas replicas{&kinds()[of], world, checker.draw_between(salt, 2, 9)};
      check_job(seam, checker, replicas,
                job_of(checker, replicas, 2, checker.draw_between(salt + 1, 1, 7), salt));
    }
  }
  const Replicas large{kinds().data(), checker.worlds({3})[0], checker.draw_between(230, 65, 75)};
  check_job(seam, checker, large, job_of(checker, large, 2, 5, 231));
  const Kind deep_kind{"the net of 17 layers",
                       [](int64_t dim, uint64_t seed) { return make_mlp(dim, 17, seed); }};
  const Replicas deep{&deep_kind, checker.worlds({4})[0], 3};
  check_job(seam, checker, deep, job_of(checker, deep, 2, 3, 235));
  const Replicas small{&kinds()[1], checker.worlds({2})[0], 2};
  const int many = static_cast<int>(checker.draw_between(240, 257, 290));
  check_job(seam, checker, small, job_of(checker, small, many, 2, 241));
  checker.proved("the same for worlds, models, shares and rates drawn from the seed, and over 256 steps");
}

/// Nothing grows from step to step.
void check_memory(const Seam& seam, Checker& checker) {
  const double kept = checker.in_child([&] {
    return bytes_kept([&](Rank& rank, Net& net) -> Step {
      return [&](auto& optimizer, const auto& input, const auto& target) {
        return static_cast<double>(seam.train_step(rank, net, optimizer, input, target));
      };
    });
  });
  checker.expect(
      kept < 24, "memory grows",
      fmt::format("1 rank: each step leaves about {:.0f} bytes more than the step before", kept),
      "Something is added in every step and never removed, such as a list of losses or gradients.");
}

/// What the ranks' logs would say: shares of 32 samples, whose losses differ a little.
void show_losses(const Seam& seam, Checker& checker) {
  const Replicas replicas{kinds().data(), checker.worlds({3}).front(), 8};
  const auto job = job_of(checker, replicas, 6, 32, 300);
  const auto run = check_job(seam, checker, replicas, job);
  checker.note(table_of_losses(run.history,
                               train_alone(*replicas.make(checker, 0), job.samples, job.batches, job.rates)));
}

/// One step to look at: backward first, then all-reduces, one after the other.
void show_step(const Seam& seam, Checker& checker) {
  const Replicas replicas{kinds().data(), checker.worlds({3}).front(), 8};
  const auto job = job_of(checker, replicas, 1, 3, 310);
  checker.show(checker.in_child([&] {
    std::vector<std::shared_ptr<Net>> nets;
    for (int r = 0; r < replicas.world; ++r) nets.push_back(replicas.make(checker, r));
    return checker.run({.world = replicas.world, .latency_us = 5, .us_per_byte = 0.01}, [&](Rank& rank) {
      const auto r = static_cast<size_t>(rank.rank());
      auto optimizer = make_optimizer(*nets[r]);
      nets[r]->before_backward_of = [&](int layer) {
        rank.note(fmt::format("backward of layer {}", layer));
        rank.compute(40);
      };
      const auto& rows = job.batches[0][r];
      seam.train_step(rank, *nets[r], optimizer, job.samples.input_of(rows), job.samples.target_of(rows));
      nets[r]->before_backward_of = nullptr;
    });
  }));
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_broadcast(seam, checker);
  check_sampler(seam, checker);
  check_steps(seam, checker);
  check_memory(seam, checker);
  show_losses(seam, checker);
  show_step(seam, checker);
}

}  // namespace lab::naive_dp
