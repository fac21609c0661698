#pragma once

#include "lab/desk.h"
#include "lab/program.h"

namespace lockstep::cli {

/// Checks the learner's file and keeps what came of it: that it passed, and its trace. Throws UsageError if
/// there is no file.
lab::Verdict check_lesson(lab::Desk& desk, const lab::Lesson& lesson, const lab::CheckRequest& request);

}  // namespace lockstep::cli
