#include "18_stages/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "18_stages/check_whole.h"
#include "lab/tensor_data.h"

namespace lab::stages {

namespace {

using torch::Tensor;

constexpr int kSteps = 3;

/// A step as one rank left it.
struct RankStep {
  float loss = 0;
  std::vector<Tensor> weights, gradients;
};

struct Run {
  std::vector<LayerRange> ranges;
  std::vector<std::vector<RankStep>> ranks;  ///< [rank][step]
  std::vector<Batch> batches;                ///< As the ranks left them.
  Report report;
};

/// Some steps of naive_step, each on its own batch.
Run run(const Seam& seam, Checker& checker, int layers, WorldOptions options, std::vector<Batch> batches) {
  options.latency_us = 0;
  const auto stages = static_cast<size_t>(options.world);
  Run found{{}, std::vector<std::vector<RankStep>>(stages), std::move(batches), {}};
  for (int r = 0; r < options.world; ++r) found.ranges.push_back(seam.layers_of(layers, r, options.world));
  found.report = checker.run(options, [&](Rank& rank) {
    const int r = rank.rank(), last = rank.world_size() - 1;
    run_on_clock(rank, [&] {
      auto stage = seam.make_stage(layers, r, rank.world_size());
      for (const auto& batch : found.batches) {
        auto& step = found.ranks[static_cast<size_t>(r)].emplace_back();
        step.loss = seam.naive_step(rank, stage, r == 0 ? batch.input : Tensor(),
                                    r == last ? batch.target : Tensor());
        step.weights = weights_of(stage.layers);
        step.gradients = gradients_of(stage.layers);
        learn(stage.layers);
      }
    });
  });
  return found;
}

bool has_any(const std::vector<Tensor>& gradients) {
  return std::any_of(gradients.begin(), gradients.end(),
                     [](const Tensor& t) { return t.defined() && t.abs().max().item<float>() > 0; });
}

/// Loss and gradients of one step are those of the whole model.
void expect_step(Checker& checker, const Run& found, size_t step, const WholeStep& whole) {
  const size_t stages = found.ranks.size(), last = stages - 1;
  const auto where = fmt::format("{}, step {}", counted(static_cast<int64_t>(stages), "stage"), step + 1);
  checker.expect(has_any(found.ranks[last][step].gradients), "nothing learns",
                 fmt::format("{}, rank {}: the last stage has no gradients", where, last),
                 "Forward, the loss, backward: on the last rank backward starts from the gradient of the "
                 "loss.");
  const float loss = found.ranks[last][step].loss;
  checker.expect(std::abs(loss - whole.loss) <= 1e-4F * whole.loss, "wrong loss",
                 fmt::format("{}: rank {} returned a loss of {:.6f}, the whole model's is {:.6f}", where,
                             last, loss, whole.loss),
                 "The last rank returns the loss of its output. Does each rank run what the rank before "
                 "sent it, and send what its own layers made of it?");
  for (size_t r = last; r-- > 0;) {
    checker.expect(has_any(found.ranks[r][step].gradients), "half learns",
                   fmt::format("{}: stage {} has no gradients, although the last one has; its loss may fall "
                               "all the same",
                               where, r),
                   "The graph ends at the cut, and so does backward: only the last stage learns. Send the "
                   "gradient of a stage's input to the rank before, which goes on from there.");
  }
  for (size_t r = stages; r-- > 0;) {  // as gradients go
    const auto rank = fmt::format("{}, rank {}", where, r);
    const auto& own = found.ranks[r][step];
    const auto first = static_cast<size_t>(found.ranges[r].begin) * 2;
    for (size_t i = 0; i < own.weights.size(); ++i) {
      checker.expect(
          is_close(own.weights[i], whole.weights[first + i]), "weights changed",
          fmt::format("{}, layer {}: naive_step left other weights than it found", rank, (first + i) / 2),
          "The step ends with the gradients. The optimizer, here the check, changes the weights.");
    }
    expect_gradients(checker, own.gradients, whole, found.ranges[r].begin, rank,
                     {"half learns", "", "Backward has not come to this layer."});
    checker.expect(r == last || own.loss == 0, "loss on other ranks",
                   fmt::format("{} returned a loss of {:.6f}", rank, own.loss),
                   "The last rank alone has the output and the target. Others return 0.");
  }
}

/// One message up and one down for each pair of neighbours in a step.
void expect_messages(Checker& checker, const Report& report, int steps) {
  const int64_t bytes = 4 * shape().batch * shape().width;
  const auto stages = std::ssize(report.bytes);
  for (int from = 0; from < stages; ++from) {
    for (int to = 0; to < stages; ++to) {
      const int64_t expected = std::abs(from - to) == 1 ? steps : 0;
      const auto messages = report.messages[static_cast<size_t>(from)][static_cast<size_t>(to)];
      const auto found = report.bytes[static_cast<size_t>(from)][static_cast<size_t>(to)];
      checker.expect(messages == expected && found == expected * bytes, "wrong messages",
                     fmt::format("{}: in {} rank {} sent {} of together {} bytes to rank {}, expected {} of "
                                 "{} bytes each",
                                 counted(stages, "stage"), counted(steps, "step"), from,
                                 counted(messages, "message"), found, to, expected, bytes),
                     "In a step one activation goes to the next rank, and one gradient to the rank before.");
    }
  }
}

/// Each layer ran once in each direction, and nobody waited longer than stop-and-wait does. Returns how long
/// each rank worked.
std::vector<double> expect_work(Checker& checker, Run& found, int layers, int steps) {
  auto& report = found.report;
  const size_t stages = found.ranks.size();
  std::vector<double> busy(stages);
  for (auto& event : report.events) {
    if (event.kind != Event::Kind::kCompute) continue;
    auto& own = busy[static_cast<size_t>(event.rank)];
    event.text = own == 0 ? "F" : "B";
    own += event.end_us - event.start_us;
  }
  const auto where =
      fmt::format("{}, {}", counted(static_cast<int64_t>(stages), "stage"), counted(steps, "step"));
  for (size_t r = 0; r < stages; ++r) {
    const int own = found.ranges[r].end - found.ranges[r].begin;
    const double work = steps * own * (kForwardUs + kBackwardUs);
    const auto what = fmt::format("{}: rank {} worked for {} us, its {} take {} us", where, r, busy[r],
                                  counted(own, "layer"), work);
    checker.expect(busy[r] <= work, "work done twice", what,
                   "Each layer runs forward once and back once in a step.");
    checker.expect(busy[r] >= work, "layers not run", what,
                   "Run each layer by layer.forward(x), which counts its time, and go back once.");
  }
  const double most = steps * layers * (kForwardUs + kBackwardUs);
  checker.expect(report.time_us <= most, "longer than stop and wait",
                 fmt::format("{}: they took {} us, the work is {} us", where, report.time_us, most),
                 "Some rank waits although what it needs is there.");
  return busy;
}

/// A world, with sends that wait for their receive and with sends that do not.
void check_world(const Seam& seam, Checker& checker, int stages, int layers, uint64_t salt) {
  checker.in_world(stages);
  const auto batches = make_batches(checker, salt, kSteps);
  const auto whole = train_whole(layers, batches);
  const auto runs = checker.in_child([&] {
    std::vector<Run> all;
    for (const bool rendezvous : {false, true})
      all.push_back(run(seam, checker, layers, {.world = stages, .rendezvous = rendezvous}, batches));
    return all;
  });
  for (Run found : runs) {
    expect_partition(checker, layers, found.ranges);
    for (size_t step = 0; step < whole.size(); ++step) {
      expect_step(checker, found, step, whole[step]);
      checker.expect(torch::equal(found.batches[step].input, batches[step].input) &&
                         torch::equal(found.batches[step].target, batches[step].target),
                     "batch changed", fmt::format("step {} wrote to its input or its target", step + 1),
                     "The batch is the caller's, and may be used again. Use no in-place operation on it.");
    }
    expect_messages(checker, found.report, kSteps);
    expect_work(checker, found, layers, kSteps);
  }
}

void check_worlds(const Seam& seam, Checker& checker) {
  for (const int stages : checker.worlds({1, 2, 3, 4, 5}))
    check_world(seam, checker, stages, std::max(17, stages), 30);
  checker.proved(fmt::format(
      "losses and all gradients are those of the whole model, for 1 to 5 stages and {} steps, with "
      "one message up and one down",
      kSteps));
  for (const int stages : checker.fresh_worlds(1, 6, 16)) {
    const auto salt = static_cast<uint64_t>(40 + stages);
    const bool is_large = stages % 2 == 1;  // messages of more than 4096 floats
    shape() = {2 * checker.draw_between(salt, 0, 4) + (is_large ? 501 : 1),
               checker.draw_between(salt + 100, 9, 15)};
    check_world(seam, checker, stages, static_cast<int>(checker.draw_between(salt, stages, 24)), salt);
  }
  shape() = {};
  checker.proved("the same for stages, layers, batches and widths drawn from the seed");
}

/// A step leaves nothing behind: bytes that are in use are the same after each.
void check_memory(const Seam& seam, Checker& checker) {
  const int stages = checker.worlds({3}).front(), layers = stages;
  const auto batch = make_batches(checker, 30, 1).front();
  checker.in_world(stages);
  const auto grown = checker.in_child([&] {
    std::vector<size_t> used(2);
    checker.run({.world = stages, .keep_events = false}, [&](Rank& rank) {
      const int r = rank.rank(), last = rank.world_size() - 1;
      run_on_clock(rank, [&] {
        auto stage = seam.make_stage(layers, r, rank.world_size());
        for (int i = 0; i <= 10 + kGrowthSteps; ++i) {
          if (r == 0 && i % kGrowthSteps == 10) used[static_cast<size_t>(i / kGrowthSteps)] = heap_bytes();
          seam.naive_step(rank, stage, r == 0 ? batch.input : Tensor(), r == last ? batch.target : Tensor());
          learn(stage.layers);
        }
      });
    });
    return static_cast<int64_t>(used[1]) - static_cast<int64_t>(used[0]);
  });
  checker.expect(grown < 600 * kGrowthSteps, "memory grows",
                 fmt::format("{}: {} steps left {} bytes", counted(stages, "stage"), kGrowthSteps, grown),
                 "Something is kept from each step, such as a list that is never emptied.");
}

void check_utilisation(const Seam& seam, Checker& checker) {
  std::string table = "stop-and-wait: how long each rank works, of the step's time";
  const auto worlds = checker.worlds({1, 2, 3, 4, 5});
  const auto batches = make_batches(checker, 30, 1);
  auto runs = checker.in_child([&] {
    std::vector<Run> all;
    for (const int stages : worlds)
      all.push_back(run(seam, checker, std::max(17, stages), {.world = stages}, batches));
    return all;
  });
  for (auto& found : runs) {
    const auto stages = static_cast<int>(found.ranks.size());
    checker.in_world(stages);
    std::string row;
    double sum = 0;
    for (const double us : expect_work(checker, found, std::max(17, stages), 1)) {
      sum += us;
      row += fmt::format(" {:4.1f}%", 100 * us / found.report.time_us);
    }
    table += fmt::format("\n  {} stage{}  {}   mean {:4.1f}% = 1/P", stages, stages == 1 ? " " : "s", row,
                         100 * sum / stages / found.report.time_us);
    if (stages == 4 || worlds.size() == 1) checker.show(std::move(found.report));
  }
  checker.note(table);
  checker.proved("one rank works at a time: utilisation is 1/P on the virtual clock, until lesson 19");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_layers(seam, checker);
  check_by_hand(seam, checker);
  check_worlds(seam, checker);
  check_memory(seam, checker);
  check_utilisation(seam, checker);
}

}  // namespace lab::stages
