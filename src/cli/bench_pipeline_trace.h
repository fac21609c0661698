#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/bench_pipeline_measure.h"

namespace lockstep::cli {

/// One step of a schedule.
struct TracedStep {
  plan::PipelinePlan plan;
  plan::PipelineSimulation predicted;  ///< In milliseconds.
  PipelineSpans run;
};

/// Steps in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open. A schedule is a
/// process; each of its ranks has three rows that begin together: the plan, every F, I and W taking the same
/// time, stretched to the length of the prediction; the prediction; the run. Receives are shown where they
/// wait, and named so.
nlohmann::json pipeline_trace(const std::vector<TracedStep>& steps);

}  // namespace lockstep::cli
