#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

/// The most slots of all ranks together that a plan read from outside may have.
constexpr int64_t kMostStoredSlots = int64_t{1} << 24;

/// The most slots that all steps of a plan read from outside may touch; about what proving it takes.
constexpr int64_t kMostStoredWork = int64_t{1} << 28;

/// A plan whose steps are given one by one: those of a file, or changed ones of another plan. `steps` has one
/// list per rank (a rank beyond its end has none) and rounds are as given. The phases of `header` are not
/// used. Nothing is checked; verify() does that.
Plan stored(Plan header, std::vector<std::vector<Step>> steps);

/// Why proving this plan would take gigabytes or minutes: it is larger than the bounds above. "" if it is
/// not.
std::string too_large(const Plan& header, const std::vector<std::vector<Step>>& steps);

}  // namespace lockstep::plan
