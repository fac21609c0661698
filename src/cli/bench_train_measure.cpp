#include "cli/bench_train_measure.h"

namespace lockstep::cli {

std::vector<TrainSystemResult> measure_train(TrainSystems& systems, const TrainBench& bench, int64_t rounds,
                                             int64_t steps) {
  std::vector<SystemLosses> losses;
  const auto check = [&](const std::string& system) {
    const auto trained = systems.train(system, kTrainCheckSteps);
    losses.push_back({.system = system, .first = trained.front(), .last = trained.back()});
    return losses.back();
  };
  std::vector<TrainSystemResult> results = {{.name = kTrainLockstep, .losses = check(kTrainLockstep)}};
  if (bench.checkpoint_every > 0) results.push_back({.name = kTrainSaving, .losses = losses.front()});
  if (bench.with_pytorch) results.push_back({.name = kTrainPytorch, .losses = check(kTrainPytorch)});
  require_equal_losses("bench train", losses);

  // The first round of all is nobody's: memory is still to be had, files to be made.
  for (const auto& result : results) systems.time(result.name, kTrainWarmUpSteps, steps);
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t turn = 0; turn < results.size(); ++turn) {
      TrainSystemResult& result = results[(turn + static_cast<size_t>(round)) % results.size()];
      result.rounds.push_back(systems.time(result.name, kTrainWarmUpSteps, steps));
    }
  }
  return results;
}

}  // namespace lockstep::cli
