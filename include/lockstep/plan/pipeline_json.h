#pragma once

#include <string>
#include <string_view>

#include "lockstep/plan/pipeline.h"

namespace lockstep::plan {

/// The JSON form of a plan, for pages and other programs; pipeline_from_json() reads it back.
///
///   {"schedule": "1f1b", "ranks": 2, "microbatches": 4, "chunks": 1,
///    "actions": [[{"kind": "F", "stage": 0, "microbatch": 0, "text": "0F0"}, ...], ...]}
std::string to_json(const PipelinePlan& plan);

/// Reads the JSON form. Every field must be there, but for text, which must say what the other fields say;
/// fields of other names are ignored. Throws UsageError with the place and the reason: `pipeline json
/// /actions/0/3/kind: ...`, or with the line for text that is not JSON.
PipelinePlan pipeline_from_json(std::string_view text);

}  // namespace lockstep::plan
