#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench_losses.h"
#include "cli/bench_train_systems.h"

namespace lockstep::cli {

/// What all rounds gave of one system.
struct TrainSystemResult {
  std::string name;
  SystemLosses losses;  ///< Lockstep's ranks, saving or not, have the same.
  std::vector<TrainRound> rounds;
};

/// Steps from the same weights whose losses are compared before anything is timed.
constexpr int64_t kTrainCheckSteps = 10;
/// Steps that each round takes before those that count: the caches have been others'.
constexpr int64_t kTrainWarmUpSteps = 2;

/// Checks the losses, then times every system once in each round, by turns; Lockstep first. Throws Error if
/// losses differ.
std::vector<TrainSystemResult> measure_train(TrainSystems& systems, const TrainBench& bench, int64_t rounds,
                                             int64_t steps);

}  // namespace lockstep::cli
