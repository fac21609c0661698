#include "07_primitives/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "07_primitives/cases.h"
#include "lab/collectives.h"

namespace lab::primitives {

namespace {

/// What primitives are for: the root's weights to everybody, a part of the data for each, and the results
/// back.
struct Step {
  int root = 0;
  std::vector<float> weights, samples;  ///< As many weights as a sample has features; a sample for each rank.
};

/// What a step's root has at its end, and what the last rank has gathered.
struct Results {
  std::vector<float> outputs, sums, everywhere;
};

/// Each step has another root and another size.
std::vector<Step> make_steps(const Checker& checker, int world) {
  std::vector<Step> steps;
  uint64_t salt = 1000 * static_cast<uint64_t>(world);
  const auto draw = [&](int64_t low, int64_t high) { return checker.draw_between(++salt, low, high); };
  for (const int root : {0, static_cast<int>(draw(0, world - 1)), world - 1}) {
    auto& step = steps.emplace_back(Step{root, std::vector<float>(index(static_cast<int>(draw(2, 12)))), {}});
    step.samples.resize(index(world) * step.weights.size());
    for (auto* const numbers : {&step.weights, &step.samples})
      std::ranges::generate(*numbers, [&] { return static_cast<float>(draw(-8, 8)); });
  }
  return steps;
}

Results expected_of(const Step& step, int world) {
  const size_t features = step.weights.size();
  Results all = {{}, std::vector<float>(features), {}};
  for (int r = 0; r < world; ++r) {
    float output = 0;
    for (size_t i = 0; i < features; ++i) {
      const float x = step.samples[index(r) * features + i];
      output += step.weights[i] * x;
      all.sums[i] += x;
    }
    all.outputs.push_back(output);
  }
  all.everywhere = all.outputs;
  return all;
}

Results take_step(const Seam& seam, Rank& rank, const Step& step) {
  const bool is_root = rank.rank() == step.root;
  const size_t features = step.weights.size();
  std::vector<float> weights = is_root ? step.weights : std::vector<float>(features, 99);
  seam.broadcast(rank, weights, step.root);
  std::vector<float> sample(features), output(1);
  seam.scatter(rank, is_root ? std::span<const float>(step.samples) : std::span<const float>(), sample,
               step.root);
  for (size_t i = 0; i < features; ++i) output[0] += weights[i] * sample[i];
  Results results = {std::vector<float>(is_root ? index(rank.world_size()) : 0), sample,
                     std::vector<float>(index(rank.world_size()))};
  seam.gather(rank, output, results.outputs, step.root);
  seam.reduce(rank, results.sums, step.root);
  seam.all_gather(rank, output, results.everywhere);
  seam.barrier(rank);
  return results;
}

/// What a run left: by step, the root's results with the last rank's `everywhere`.
struct Trained {
  Report report;
  std::vector<Results> results;
};

void check_training(const Seam& seam, Checker& checker, int world) {
  checker.in_world(world);
  const auto steps = make_steps(checker, world);
  const auto trained = checker.in_child([&] {
    forbid_collectives();
    Trained all = {{}, std::vector<Results>(steps.size())};
    all.report = run_world({.world = world, .seed = checker.seed()}, [&](Rank& rank) {
      for (size_t s = 0; s < steps.size(); ++s) {
        auto results = take_step(seam, rank, steps[s]);
        if (rank.rank() == world - 1) all.results[s].everywhere = std::move(results.everywhere);
        if (rank.rank() != steps[s].root) continue;
        all.results[s].outputs = std::move(results.outputs);
        all.results[s].sums = std::move(results.sums);
      }
    });
    return all;
  });
  const std::string where =
      fmt::format("all functions one after the other, {} steps on {}", steps.size(), counted(world, "rank"));
  const char* const meaning =
      "Each of the functions is right alone, but not after the others. Does one of them send a message that "
      "another "
      "one receives? Does it keep something, such as a buffer, from one call to the next?";
  checker.expect(trained.report.problem.empty(), trained.report.problem, where + ": " + trained.report.what,
                 meaning);
  for (size_t s = 0; s < steps.size(); ++s) {
    const auto expected = expected_of(steps[s], world);
    const auto& found = trained.results[s];
    const auto compare = [&](const char* name, const std::vector<float>& is,
                             const std::vector<float>& should) {
      const auto at = static_cast<size_t>(std::ranges::mismatch(is, should).in2 - should.begin());
      if (at == should.size()) return;
      checker.fail("wrong data",
                   fmt::format("{}: in step {} with root {}, element {} of the {} is {}, expected {}", where,
                               s + 1, steps[s].root, at, name, is[at], should[at]),
                   meaning);
    };
    compare("predictions (broadcast, scatter, gather)", found.outputs, expected.outputs);
    compare("sum of samples (scatter, reduce)", found.sums, expected.sums);
    compare("predictions on the last rank (all_gather)", found.everywhere, expected.everywhere);
  }
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_trees(seam, checker);
  check_parts(seam, checker);
  check_barrier(seam, checker);
  checker.in_part("");
  check_training(seam, checker, checker.worlds({4})[0]);
  check_training(seam, checker, checker.worlds({static_cast<int>(checker.draw_between(72, 5, 12))})[0]);
  checker.proved("together they initialise a model, hand out its data and collect its predictions");
}

}  // namespace lab::primitives
