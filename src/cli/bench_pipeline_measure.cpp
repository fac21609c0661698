#include "cli/bench_pipeline_measure.h"

#include <algorithm>
#include <cmath>

namespace lockstep::cli {

plan::PipelineCosts costs_of(const PipelineBench& bench, const PipelineRound& round) {
  if (bench.sleeps()) {
    return {.ranks = {{.forward = bench.sleep_ms[0],
                       .input_grad = bench.sleep_ms[1],
                       .weight_grad = bench.sleep_ms[2]}}};
  }
  plan::PipelineCosts costs = {.ranks = {}};
  for (size_t rank = 0; rank < round.forward_ms.size(); ++rank) {
    costs.ranks.push_back({.forward = round.forward_ms[rank],
                           .input_grad = round.backward_ms[rank] / 2,
                           .weight_grad = round.backward_ms[rank] / 2});
  }
  return costs;
}

std::vector<PipelineResult> measure_pipeline(PipelineSystems& systems, const PipelineBench& bench,
                                             int64_t rounds, int64_t steps) {
  std::vector<PipelineResult> results;
  std::vector<SystemLosses> losses;
  for (size_t system = 0; system < systems.count(); ++system) {
    const auto trained = systems.train(system, kPipelineCheckSteps);
    losses.push_back({.system = systems.name(system), .first = trained.front(), .last = trained.back()});
    results.push_back({.name = systems.name(system), .measured = {}});
  }
  require_equal_losses("bench pipeline: " + (bench.sleeps() ? "sleeping stages" : bench.model.name()),
                       losses);

  constexpr int64_t kTrialSteps = 2;
  constexpr double kRoundMs = 500;
  double slowest_ms = 0;
  for (size_t system = 0; system < results.size(); ++system) {
    const double taken_ms = systems.time(system, kPipelineWarmUpSteps, kTrialSteps).step_ms;
    if (system < bench.rows.size()) slowest_ms = std::max(slowest_ms, taken_ms);
  }
  if (steps == 0) steps = static_cast<int64_t>(std::clamp(std::round(kRoundMs / slowest_ms), 2.0, 200.0));

  std::vector<plan::PipelinePlan> plans;
  for (const auto& row : bench.rows) plans.push_back(bench.plan_of(row));
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t turn = 0; turn < results.size(); ++turn) {
      const size_t system = (turn + static_cast<size_t>(round)) % results.size();
      PipelineMeasurement measured = {.round = systems.time(system, kPipelineWarmUpSteps, steps)};
      if (system < plans.size())
        measured.predicted = plan::simulate_pipeline(plans[system], costs_of(bench, measured.round));
      results[system].measured.push_back(std::move(measured));
    }
  }
  return results;
}

}  // namespace lockstep::cli
