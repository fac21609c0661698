#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/bench_ddp_measure.h"

namespace lockstep::cli {

/// Everything that was measured: rows (one per model and system), ratios to Lockstep, the parts of Lockstep's
/// step with their floors, and what the ranks computed with.
nlohmann::json ddp_document(const DdpBench& bench, const BenchSettings& settings,
                            const std::vector<DdpModelResult>& results);

/// The same for people, on standard output.
void print_ddp(const nlohmann::json& document);

}  // namespace lockstep::cli
