#pragma once

#include <string>

#include "lockstep/plan/plan.h"

namespace lockstep::cli {

/// The collective that a word of the command line names, in any spelling. Throws UsageError with the nearest
/// name; `lockstep VERB pipeline` counts among them.
plan::Collective collective_named(const std::string& word);

}  // namespace lockstep::cli
