#include "cli/bench_ddp_measure.h"

#include <algorithm>
#include <cmath>

#include "cli/bench_model.h"
#include "launch/cores.h"
#include "lockstep/plan/collectives.h"
#include "lockstep/plan/verify.h"

namespace lockstep::cli {

namespace {

/// Of blocks as large as the parameters.
double copy_rate(const DdpBench& bench, const MlpSizes& model) {
  auto cores = launch::allowed_cores();
  cores.resize(std::min(cores.size(), static_cast<size_t>(bench.world)));
  const auto bytes = static_cast<uint64_t>(model.parameter_count()) * sizeof(float);
  return measure_copy_rate_of(cores, bytes).all_cores / static_cast<double>(bench.world);
}

/// The last losses of systems that trained alike; a single process has been training on samples of its own.
void require_equal_ends(const DdpModelResult& result) {
  std::vector<SystemLosses> ends;
  for (const auto& system : result.systems) {
    if (system.losses.system == "libtorch") continue;
    const double end = system.rounds.back().loss;
    ends.push_back({.system = system.losses.system, .first = end, .last = end});
  }
  // Rounding has had all rounds to grow: 8e-4 after 1400 steps was seen.
  constexpr double kEndTolerance = 1e-2;
  require_equal_losses("bench ddp: " + result.model.name(), ends, kEndTolerance);
}

}  // namespace

DdpModelResult measure_ddp(DdpSystems& systems, const DdpBench& bench, size_t model, int64_t rounds,
                           int64_t steps) {
  DdpModelResult result = {.model = bench.models[model]};
  systems.build(model);
  std::vector<SystemLosses> losses;
  for (const auto& name : systems.names()) {
    const auto trained = systems.train(name, kDdpCheckSteps);
    losses.push_back({.system = name, .first = trained.front(), .last = trained.back()});
    result.systems.push_back({.losses = losses.back(), .rounds = {}});
  }
  require_equal_losses("bench ddp: " + result.model.name(), losses);

  constexpr int64_t kTrialSteps = 5;
  constexpr double kRoundMs = 350;
  double trial_ms = 0;
  for (const auto& name : systems.names()) {
    const double taken = systems.time(name, kDdpWarmUpSteps, kTrialSteps).step_ms;
    if (name == "lockstep") trial_ms = taken;
  }
  result.steps =
      steps > 0 ? steps : static_cast<int64_t>(std::clamp(std::round(kRoundMs / trial_ms), 3.0, 200.0));

  const size_t count = result.systems.size();
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t turn = 0; turn < count; ++turn) {
      DdpSystemResult& system = result.systems[(turn + static_cast<size_t>(round)) % count];
      system.rounds.push_back(systems.time(system.losses.system, kDdpWarmUpSteps, result.steps));
    }
    result.floors.push_back(systems.floor(result.steps));
    result.copy_rate = std::max(result.copy_rate, copy_rate(bench, result.model));
  }
  require_equal_ends(result);
  return result;
}

int64_t ddp_wire_bytes(const DdpBench& bench, const DdpModelResult& result, const DdpSystemResult& system) {
  const auto world = static_cast<int>(bench.world);
  if (system.losses.system == "libtorch" || world == 1) return 0;
  const auto sent = [&](const std::string& algorithm, int64_t count) {
    const plan::Plan plan =
        plan::make_plan(plan::Collective::kAllReduce, algorithm, {.world = world, .ranks_per_node = world});
    return plan::verify(plan, {.count = count}).traffic.bytes_per_rank;
  };
  if (system.losses.system != "lockstep") return sent("ring", result.model.parameter_count());
  const CollectiveBench as_called = {.collective = "allreduce", .world = bench.world};
  int64_t bytes = 0;
  for (const int64_t bucket : system.rounds.back().bucket_bytes) {
    const std::string algorithm =
        plan_of(as_called, {.engine = bench.engine, .algorithm = "", .bytes = bucket});
    bytes += sent(algorithm, bucket / static_cast<int64_t>(sizeof(float)));
  }
  return bytes;
}

}  // namespace lockstep::cli
