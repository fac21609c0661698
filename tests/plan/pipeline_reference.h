#pragma once

#include <cstdint>
#include <string>

#include "lockstep/plan/pipeline_verify.h"

namespace lockstep::plan::reference {

/// Trains one step by a pipeline plan, on numbers: ranks take turns at random, messages carry values and no
/// names. Compares the gradients of all weights with those of one process. Returns what went wrong, or "";
/// `deadlock` if ranks wait for ever. Written without the verifier's code, to judge it.
std::string fault_of(const PipelinePlan& plan, PipelineSends sends, uint64_t seed);

}  // namespace lockstep::plan::reference
