#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/bench_pipeline_measure.h"

namespace lockstep::cli {

/// {"rows", "ratios", "settings"}; what is printed comes from it alone.
nlohmann::json pipeline_document(const PipelineBench& bench, const BenchSettings& settings,
                                 const std::vector<PipelineResult>& results);
void print_pipeline(const nlohmann::json& document);

}  // namespace lockstep::cli
