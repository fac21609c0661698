#include "13_bucketing/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "13_bucketing/check_parts.h"
#include "lab/replicas.h"

namespace lab::bucketing {

namespace {

/// A model and a cap that the check trains with.
struct Kind {
  std::string name;
  std::shared_ptr<Net> (*make)(int64_t dim, uint64_t seed);
  int64_t cap_bytes = 0;      ///< For width 8.
  bool is_two_sided = false;  ///< One rank may lack gradients.
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"the net of 17 layers", [](int64_t dim, uint64_t seed) { return make_mlp(dim, 17, seed); }, 1152},
      {"the net with a tied weight", make_tied, 100},
      {"the net with a frozen layer", make_frozen, 100'000},
      // Its buckets have different sizes, and the first layer's is complete where the one before it is not.
      {"the net with two experts", make_experts, 544, true},
      {"the net with tied and frozen weights",
       [](int64_t dim, uint64_t seed) { return make_mixed(dim, 5, seed, seed); }, 600},
  };
  return all;
}

/// What is trained with the learner's buckets.
struct Task {
  Kind kind;
  int64_t cap = 0;
  Job job;
};

Task make_task(const Checker& checker, const Kind& kind, int64_t cap, int world, int64_t dim, int steps,
               int64_t share, uint64_t salt) {
  const int64_t size = share * world + 6;
  const uint64_t data_seed = checker.draw(salt + 1) % 1000, seed = checker.draw(salt + 2) % 1'000'000;
  const auto samples =
      kind.is_two_sided ? make_two_sided_samples(size, dim, data_seed) : make_samples(size, dim, data_seed);
  return {kind, cap,
          Job{.net_name = kind.name,
              .make = [make = kind.make, dim, seed](int) { return make(dim, seed); },
              .world = world,
              .samples = samples,
              .batches = kind.is_two_sided ? one_sided_batches(samples, world, steps, share)
                                           : make_batches(checker, world, steps, share, size),
              .rates = {.learning_rate = 0.001 * static_cast<double>(checker.draw_between(salt + 3, 2, 9)),
                        .momentum = 0.1 * static_cast<double>(checker.draw_between(salt + 4, 0, 8))},
              .resets = checker.draw(salt + 5) % 2 == 0}};
}

/// Messages and floats of every step: those of the buckets, in all steps the same.
void expect_counts(Checker& checker, const Task& task, const Reductions& log, const Buckets& buckets,
                   const std::vector<int64_t>& bytes, bool has_ended) {
  const auto& [kind, cap, job] = task;
  std::vector<int64_t> expected;
  for (const auto& bucket : buckets) expected.push_back(sum_of(bytes, bucket) / 4);
  const int64_t floats = std::accumulate(expected.begin(), expected.end(), int64_t{0});
  for (int s = 0; s < std::ssize(job.batches); ++s) {
    for (int r = 0; r < job.world; ++r) {
      const int64_t calls = log.calls_of(r, s), sum = log.floats_of(r, s);
      if (job.world == 1 && calls == 0) continue;  // nothing needs sending
      if (!has_ended && calls <= std::ssize(expected) && sum <= floats)
        continue;  // another problem came before
      const auto where = fmt::format("step {}, rank {} of {}, {}", s + 1, r, job.world, kind.name);
      const auto what = fmt::format("{}: {} of together {}; there are {} of together {}", where,
                                    counted(calls, "all-reduce"), counted(sum, "float"),
                                    counted(std::ssize(expected), "bucket"), counted(floats, "float"));
      checker.expect(calls == std::ssize(expected) || s > 0, "messages are not buckets", what,
                     "One all-reduce for each bucket: when the last of its gradients has come, not before, "
                     "and only once.");
      checker.expect(calls == std::ssize(expected), "buckets not reset", what,
                     "The first step was right. After each step every bucket must again wait for all its "
                     "gradients, and be sent again: set the counters back.");
      checker.expect(sum <= floats || s == 0, "bytes grow", what,
                     "The buckets hold more than in the first step: what was copied into them then is still "
                     "there. Empty a bucket before you fill it.");
      checker.expect(sum == floats, "wrong floats reduced", what,
                     "A bucket holds each of its gradients once, whole, and nothing else.");
      std::vector<int64_t> counts;
      for (const auto& each : log.of(r, s)) counts.push_back(each.count);
      checker.expect(counts == expected, "buckets out of order",
                     fmt::format("{}: all-reduces of {} floats, expected buckets of {}", where,
                                 fmt::join(counts, ", "), fmt::join(expected, ", ")),
                     "Bucket 0 leaves first, then bucket 1, and so on: next_ is the one to be sent next.");
    }
  }
}

/// All-reduces cost 2 (P - 1) S bytes together; nothing else is sent.
void expect_bytes(Checker& checker, const Task& task, const Report& report,
                  const std::vector<int64_t>& bytes) {
  int64_t sent = 0;
  for (int r = 0; r < task.job.world; ++r) sent += report.sent_bytes(r);
  const int64_t most = 2 * (task.job.world - 1) * std::ssize(task.job.batches) *
                       std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  checker.expect(
      sent <= most, "more than all-reduces",
      fmt::format("{}, {}: {} bytes were sent in {} steps, at most {} are needed",
                  counted(task.job.world, "rank"), task.kind.name, sent, task.job.batches.size(), most),
      "Buckets change the number of messages, and never the bytes. Send nothing beside them.");
}

/// Gradients that stayed this rank's own, in the first step.
void expect_nothing_left(Checker& checker, const Task& task, const Net& net, const Training& run,
                         const std::vector<TrueStep>& truth, int64_t buckets, int64_t floats) {
  const auto& [history, log, report] = run;
  for (int r = 0; r < task.job.world && task.job.world > 1; ++r) {
    const bool has_stepped = history.weights[static_cast<size_t>(r)].size() > 1;
    const int64_t calls = log.calls_of(r, 0);
    auto own = left_behind(net, history, truth, 0, r);
    if (!has_stepped || (own.empty() && (calls >= buckets || log.floats_of(r, 0) >= floats))) continue;
    const size_t count = own.size();
    if (count > 4) own.resize(4);
    const auto what = fmt::format(
        "step 1, rank {} of {}, {}: finish() returned after {} of {} had been "
        "reduced; {} of {} gradients are this rank's own{}{}{}",
        r, task.job.world, task.kind.name, calls, counted(buckets, "bucket"), count,
        trainable_parameters(net).size(), count > 0 ? ": " : "", fmt::join(own, ", "),
        count > 4 ? ", ..." : "");
    checker.expect(
        calls < buckets, "mean not put back", what,
        "Every bucket was sent, but these gradients are as they were before. After the wait finish() "
        "must write each mean from the bucket's buffer into grad().");
    checker.fail(
        "gradients left behind", what,
        "A bucket was never sent. It is complete when all its gradients have come, not when it holds "
        "so many bytes: the last one is seldom full. And what is not complete after backward must be "
        "sent then.");
  }
}

/// Buckets left with what belongs into them: what a gradient is made of shows what was in its place instead.
void expect_contents(Checker& checker, const Task& task, const Net& net, const History& history,
                     const std::vector<TrueStep>& truth) {
  const auto parameters = unique_parameters(net);
  const auto is = [](const torch::Tensor& found, const torch::Tensor& made_of) {
    return (found - made_of).abs().max().item<double>() <= 1e-6 + 1e-4 * made_of.abs().max().item<double>();
  };
  for (size_t s = 0; s < truth.size(); ++s) {
    for (size_t r = 0; r < history.gradients.size(); ++r) {
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto& found = history.gradients[r][s][i];
        const auto& right = truth[s].gradients[i];
        if (!found.defined() || is(found, right)) continue;
        const auto where = fmt::format("step {}, rank {} of {}, {} of {}", s + 1, r, task.job.world,
                                       parameters[i].name, task.kind.name);
        checker.expect(!is(found, torch::zeros_like(right)), "zeros averaged",
                       where + ": after finish() its gradient is zero",
                       "Its bucket was sent without it. Either it left before this gradient had come (count "
                       "down by one for each gradient, and send at zero), or send() does not copy it, whole, "
                       "into the buffer.");
        const auto& before = s == 0 ? found : history.gradients[r][s - 1][i];
        checker.expect(
            s == 0 || !before.defined() || !is(found, right + before), "stale buffer",
            where + ": after finish() it holds this step's mean and the last step's together",
            "What a bucket's buffer held from the step before was averaged once more. Fill the whole "
            "buffer in each step, with zeros for a gradient that is undefined.");
        return;  // expect_parity says more
      }
    }
  }
}

/// finish() returned when all was over.
void expect_waits(Checker& checker, const Task& task, const Training& run, int64_t buckets) {
  const auto& [history, log, report] = run;
  for (int r = 0; r < task.job.world; ++r) {
    if (log.calls_of(r, 0) > buckets) return;  // which is worse
  }
  for (size_t r = 0; r < history.reduced.size(); ++r) {
    for (size_t s = 0; s < history.reduced[r].size(); ++s) {
      const int64_t begun = log.calls_of(static_cast<int>(r), static_cast<int>(s));
      checker.expect(
          history.updates[r][s] == 0 || history.reduced[r][s] >= begun, "never waited",
          fmt::format("step {}, rank {} of {}, {}: when finish() returned, {} of {} were over", s + 1, r,
                      task.job.world, task.kind.name, history.reduced[r][s], counted(begun, "all-reduce")),
          "start() only begins an all-reduce. finish() must wait() for the Work of each bucket.");
    }
  }
  if (report.problem == "never waited" || report.problem == "buffer changed")
    checker.expect_no_problem(report);
}

void expect_training(Checker& checker, const Task& task, const Training& run) {
  const auto& [kind, cap, job] = task;
  const auto& [history, log, report] = run;
  checker.in_world(job.world);
  const auto net = job.make(0), trained = job.make(0);
  const auto bytes = bytes_of(*net);
  const auto buckets = filled(bytes, cap);
  const int64_t floats = std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) / 4;
  const auto truth = train_alone(*trained, job.samples, job.batches, job.rates, &history);
  const bool has_ended = report.problem.empty();
  checker.expect(
      log.calls_of(0, 0) > 0 || job.world == 1 || !has_ended, "nothing averaged",
      fmt::format("step 1, {}, {}: rank 0 made no all-reduce", counted(job.world, "rank"), kind.name),
      "gradient_came() counts down and sends a bucket whose last gradient has come; finish() sends "
      "what is left.");
  expect_waits(checker, task, run, std::ssize(buckets));
  if (kind.is_two_sided && report.problem == "exception") {
    checker.fail("missing gradient", report.what,
                 "In this step one rank has no sample for one of the experts, so that a bucket is never "
                 "complete there. finish() must send it all the same, with zeros for what is undefined.");
  }
  expect_nothing_left(checker, task, *net, run, truth, std::ssize(buckets), floats);
  if (const auto difference = log.first_difference(/*counts=*/false); !difference.empty()) {
    const auto first = log.of(0, 0);
    const bool are_buckets = std::all_of(first.begin(), first.end(), [&](const auto& each) {
      return std::any_of(buckets.begin(), buckets.end(),
                         [&](const auto& bucket) { return sum_of(bytes, bucket) == 4 * each.count; });
    });
    checker.expect(
        are_buckets, "wrong floats reduced", difference,
        "That is not the size of a bucket. Which buffer does the started body refer to, and does it "
        "still exist when the body runs?");
    checker.fail(
        "orders differ", difference,
        "A bucket whose gradients have all come must still wait for the buckets before it: on "
        "another rank they may be complete earlier. Send by number: next_ is the one to be sent next.");
  }
  expect_counts(checker, task, log, buckets, bytes, has_ended);
  checker.expect_no_problem(report);
  expect_contents(checker, task, *net, history, truth);
  expect_parity(checker, kind.name, *net, history, truth);
  expect_bytes(checker, task, report, bytes);
}

/// Trains in a child, one task after the other, and judges here.
void check_tasks(const Seam& seam, Checker& checker, const std::vector<Task>& tasks) {
  const auto runs = checker.in_child([&] {
    std::vector<Training> all;
    for (const auto& task : tasks) {
      all.push_back(train_ranks(
          checker, task.job,
          [&](Rank& rank, Net& net) -> Step {
            return [&net, finish = finish_of(seam, rank, net, task.cap)](auto& optimizer, const auto& input,
                                                                         const auto& target) {
              return step(finish, net, optimizer, input, target);
            };
          },
          /*layer_us=*/10));
      if (!all.back().report.problem.empty()) break;
    }
    return all;
  });
  for (size_t i = 0; i < runs.size(); ++i) expect_training(checker, tasks[i], runs[i]);
}

void check_steps(const Seam& seam, Checker& checker) {
  for (const auto& kind : kinds()) {
    std::vector<Task> tasks;
    for (const int world : checker.worlds({3, 2, 4, 1}))
      tasks.push_back(make_task(checker, kind, kind.cap_bytes, world, 8, 3, 3, 10));
    check_tasks(seam, checker, tasks);
  }
  checker.proved("in every step there are as many all-reduces as buckets, with the same bytes");
  checker.proved(
      "after each of 3 steps all ranks have the gradients and weights of one process on the whole batch, "
      "also "
      "if one rank lacks a gradient");
}

/// Worlds, models, caps, shares and rates that no text shows.
void check_drawn(const Seam& seam, Checker& checker) {
  std::vector<Task> tasks;
  const auto add = [&](const Kind& kind, int world, int64_t dim, int steps, int64_t share, uint64_t salt) {
    const auto bytes = bytes_of(*kind.make(dim, 1));
    const int64_t all = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    const int64_t cap = checker.draw_between(salt + 6, all / 10, all / 2);
    tasks.push_back(make_task(checker, kind, cap, world, dim, steps, share, salt));
  };
  std::set<int> worlds;
  for (const auto& some : {checker.fresh_worlds(0, 6, 7), checker.fresh_worlds(1, 9, 16)})
    worlds.insert(some.begin(), some.end());
  for (const int world : worlds) {
    const auto salt = 100 + 20 * static_cast<uint64_t>(world);
    add(kinds()[checker.draw(salt) % kinds().size()], world, checker.draw_between(salt + 10, 3, 9), 2,
        checker.draw_between(salt + 11, 1, 7), salt);
  }
  add(kinds()[3], checker.worlds({3})[0], checker.draw_between(40, 5, 7), 4, 3, 50);
  tasks.back().job.resets = true;
  add(kinds()[3], checker.worlds({2})[0], checker.draw_between(41, 9, 11), 4, 4, 60);
  tasks.back().job.resets = false;
  add(kinds()[4], checker.worlds({3})[0], checker.draw_between(42, 65, 75), 2, 5, 70);
  add(kinds()[1], checker.worlds({2})[0], 2, static_cast<int>(checker.draw_between(43, 257, 290)), 2, 80);
  check_tasks(seam, checker, tasks);
  checker.proved(
      "the same for worlds, models, caps, shares and rates drawn from the seed, and over 256 steps");
}

}  // namespace

Finish finish_of(const Seam& seam, Rank& rank, Net& net, int64_t cap) {
  return [&seam, learner = seam.make(rank, net, cap)] { seam.finish(learner.get()); };
}

double step(const Finish& finish, Net& net, torch::optim::Optimizer& optimizer, const torch::Tensor& input,
            const torch::Tensor& target) {
  optimizer.zero_grad();
  const auto loss = torch::mse_loss(net.forward(input), target);
  loss.backward();
  finish();
  optimizer.step();
  return loss.item<double>();
}

void check(const Seam& seam, Checker& checker) {
  check_fill(seam, checker);
  check_steps(seam, checker);
  check_drawn(seam, checker);
  check_memory(seam, checker);
  check_time(seam, checker);
}

}  // namespace lab::bucketing
