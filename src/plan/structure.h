#pragma once

#include <string>

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

struct Structure {
  std::string problem;     ///< Empty if the plan is well formed.
  bool one_sided = false;  ///< Has flags, or combines in the memory of others.
};

/// What is wrong with the numbers that describe the plan, or "".
std::string check_header(const Plan& plan);

/// Checks each rank's steps by themselves: peers, slots and chunks exist; rounds rise; local steps open a
/// round; and what overlaps in a round does not collide.
Structure check_structure(const Plan& plan);

}  // namespace lockstep::plan
