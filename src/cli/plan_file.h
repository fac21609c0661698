#pragma once

#include <string>

#include "lockstep/plan/plan.h"

namespace lockstep::cli {

/// Reads a plan from a file in the text or the JSON form (which begins with `{`). Throws UsageError with the
/// file's name and line, or place in the JSON.
plan::Plan read_plan_file(const std::string& path);

}  // namespace lockstep::cli
