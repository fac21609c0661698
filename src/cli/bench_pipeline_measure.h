#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench_losses.h"
#include "cli/bench_pipeline_systems.h"
#include "lockstep/plan/pipeline_simulate.h"

namespace lockstep::cli {

/// A round, and what the simulator makes of the times that its actions took.
struct PipelineMeasurement {
  PipelineRound round;
  plan::PipelineSimulation predicted;
};

/// What all rounds gave of one system.
struct PipelineResult {
  std::string name;                           ///< The schedule, or the peer.
  std::vector<PipelineMeasurement> measured;  ///< By round. Nothing is predicted of a peer.
};

/// Steps from the same weights whose losses are compared before anything is timed.
constexpr int64_t kPipelineCheckSteps = 5;
/// Steps that each round takes before those that count.
constexpr int64_t kPipelineWarmUpSteps = 2;

/// Checks the losses, then times every system once in each round, by turns. `steps` of 0 are as many as take
/// the slowest schedule about half a second. Throws Error if losses differ.
std::vector<PipelineResult> measure_pipeline(PipelineSystems& systems, const PipelineBench& bench,
                                             int64_t rounds, int64_t steps);

/// A round's forwards and backwards as the simulator takes them: those that ranks were told to sleep, or
/// those that were measured. Messages take no time.
plan::PipelineCosts costs_of(const PipelineBench& bench, const PipelineRound& round);

}  // namespace lockstep::cli
