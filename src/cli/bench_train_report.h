#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/bench_train_measure.h"

namespace lockstep::cli {

/// {"rows", "ratios", "checkpoints", "settings"}: a row of each system; how many times as many tokens a
/// second Lockstep trains as a peer; what saving costs, null if nothing was saved. `steps`: of a round.
nlohmann::json train_document(const TrainBench& bench, const TrainSystems& systems,
                              const BenchSettings& settings, int64_t steps,
                              const std::vector<TrainSystemResult>& results);

/// The same for people, on standard output.
void print_train(const nlohmann::json& document);

}  // namespace lockstep::cli
