#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep::cli {

/// The collective that a word of the command line names, in any spelling. Throws UsageError with the nearest
/// name; `lockstep VERB pipeline` counts among them.
plan::Collective collective_named(const std::string& word);

/// All of them as typed: `allreduce`.
std::vector<std::string> collective_words();

/// Throws UsageError with the nearest name for an algorithm that the collective has not.
void require_algorithm(plan::Collective collective, const std::string& word);

}  // namespace lockstep::cli
