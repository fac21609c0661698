#include <fmt/format.h>

#include <list>

#include "13_bucketing/check_parts.h"
#include "lab/collectives.h"
#include "lab/replicas.h"
#include "lab/sums.h"

namespace lab::bucketing {

namespace {

/// Many steps, with gradients in memory that has margins.
struct Endurance {
  std::string damage;
  int64_t grown = 0;  ///< Bytes in use, in kGrowthSteps steps.
};
constexpr int kGrowthSteps = 60;

Endurance run_long(Checker& checker, int world, int64_t dim,
                   const std::function<Finish(Rank& rank, Net& net)>& begin) {
  const auto samples = make_samples(2 * world, dim, 1);
  const auto batches = make_batches(checker, world, 1, 2, 2 * world);
  Endurance found;
  std::vector<size_t> used(2);
  std::list<GuardedFloats> memory;
  checker.run({.world = world, .keep_events = false}, [&](Rank& rank) {
    const auto net = make_mlp(dim, 2, 1);
    std::vector<GuardedFloats*> own;
    for (const auto& parameter : trainable_parameters(*net)) {
      own.push_back(&memory.emplace_back(GuardedFloats::make(static_cast<size_t>(parameter.numel()))));
      parameter.mutable_grad() = torch::from_blob(own.back()->floats().data(), parameter.sizes());
    }
    auto optimizer = make_optimizer(*net);
    const auto finish = begin(rank, *net);
    const auto& rows = batches[0][static_cast<size_t>(rank.rank())];
    const auto input = samples.input_of(rows), target = samples.target_of(rows);
    for (int s = 0; s <= 10 + kGrowthSteps; ++s) {
      if (rank.rank() == 0 && s % kGrowthSteps == 10)
        used[static_cast<size_t>(s / kGrowthSteps)] = heap_bytes();
      step(finish, *net, optimizer, input, target);
    }
    for (size_t i = 0; i < own.size() && found.damage.empty(); ++i) {
      const auto damage = own[i]->damage();
      if (!damage.empty())
        found.damage =
            fmt::format("rank {} of {}: at the gradient of parameter {}, {}", rank.rank(), world, i, damage);
    }
  });
  found.grown = static_cast<int64_t>(used[1]) - static_cast<int64_t>(used[0]);
  return found;
}

}  // namespace

void check_memory(const Seam& seam, Checker& checker) {
  const int world = checker.worlds({3}).front();
  checker.in_world(world);
  const int64_t dim = checker.draw_between(90, 11, 17);
  const int64_t cap = 4 * dim;
  const auto found = checker.in_child([&] {
    auto learners =
        run_long(checker, world, dim, [&](Rank& rank, Net& net) { return finish_of(seam, rank, net, cap); });
    // What the world itself keeps of as many all-reduces.
    const auto ours = run_long(checker, world, dim, [&](Rank& rank, Net& net) -> Finish {
      const auto bytes = bytes_of(net);
      return [&rank, bytes, cap] {
        for (const auto& bucket : filled(bytes, cap)) {
          std::vector<float> flat(static_cast<size_t>(sum_of(bytes, bucket) / 4));
          rank.start([&flat](Rank& stream) { collectives().all_reduce(stream, flat); }).wait();
        }
      };
    });
    learners.grown -= ours.grown;
    return learners;
  });
  checker.expect(
      found.damage.empty(), "wrote outside", found.damage,
      "A gradient has as many floats as its parameter. Where in the bucket's buffer does the next one "
      "begin?");
  checker.expect(
      found.grown < 1300 * kGrowthSteps, "memory grows",
      fmt::format("{}: {} steps left {} bytes", counted(world, "rank"), kGrowthSteps, found.grown),
      "Something is kept from each step, such as a list of buffers or of Work that is never emptied.");
  checker.proved("steps leave nothing behind, and write nowhere but into gradients and buckets");
}

}  // namespace lab::bucketing
