#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench_ddp_systems.h"
#include "cli/bench_losses.h"
#include "cli/copy_rate.h"

namespace lockstep::cli {

/// What all rounds gave of one system.
struct DdpSystemResult {
  SystemLosses losses;
  std::vector<DdpRound> rounds;
};

/// What all rounds gave of one model.
struct DdpModelResult {
  MlpSizes model;
  int64_t steps = 0;                     ///< Timed in each round.
  std::vector<DdpSystemResult> systems;  ///< Lockstep first.
  std::vector<DdpFloor> floors;          ///< By round.
  double copy_rate = 0;  ///< Bytes that a rank copies in a second while all others do; the best round.
};

/// Steps from the same weights whose losses are compared before anything is timed.
constexpr int64_t kDdpCheckSteps = 10;
/// Steps that each round takes before those that count: the caches have been others'.
constexpr int64_t kDdpWarmUpSteps = 2;

/// Checks the losses, then times every system once in each round, by turns. `steps` of 0 are as many as take
/// Lockstep about a third of a second. Throws Error if losses differ.
DdpModelResult measure_ddp(DdpSystems& systems, const DdpBench& bench, size_t model, int64_t rounds,
                           int64_t steps);

/// Bytes that a rank sends in a step for its gradients (on shared memory: loads from and stores to memory of
/// others), counted from the plan that each bucket takes; PyTorch's by the ring that Gloo uses.
int64_t ddp_wire_bytes(const DdpBench& bench, const DdpModelResult& result, const DdpSystemResult& system);

}  // namespace lockstep::cli
