#pragma once

#include <string>

#include "lockstep/plan/pipeline.h"
#include "lockstep/plan/plan.h"

namespace lockstep::cli {

/// Reads a plan from a file in the text or the JSON form (which begins with `{`). Throws UsageError with the
/// file's name and line, or place in the JSON.
plan::Plan read_plan_file(const std::string& path);

/// The same for a pipeline's plan, which may be in the CSV form (which begins with `pipeline,`), too.
plan::PipelinePlan read_pipeline_file(const std::string& path);

}  // namespace lockstep::cli
