#pragma once

#include <string>

#include "lockstep/plan/pipeline.h"

namespace lockstep::plan {

/// The first thing of a plan that cannot be: its shape, or an action of a stage or micro-batch that there is
/// not, on a rank that has not got it, or to nobody. "" if there is none.
std::string misplaced(const PipelinePlan& plan);

/// What is wrong with a plan by what each rank does on its own: misplaced(), or an action that is missing,
/// comes twice, or comes before what it needs of the same rank. "" if nothing.
std::string broken_rule(const PipelinePlan& plan);

}  // namespace lockstep::plan
