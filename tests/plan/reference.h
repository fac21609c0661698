#pragma once

#include <cstdint>
#include <string>

#include "lockstep/plan/plan.h"

namespace lockstep::plan::reference {

// The oracle of the verifier: it shares no code with it, and believes only what real buffers hold at the end.

/// Runs a plan on buffers of `count` elements in one random interleaving of all ranks' doings. Values are
/// distinct by rank and element, and their sums exact, so that a lost, doubled or misplaced one shows. Loads
/// and stores of a combine are separate doings; a rank that is done spoils its buffer, as its user may.
/// Returns what went wrong, or "" if every rank got what the collective promises.
std::string fault_of(const Plan& plan, Count count, uint64_t seed);

/// The same with values whose sums depend on the order of adding and on the side of each operand: all ranks
/// must end with the same bits, those of the declared order if it is by rank or by node.
std::string order_fault_of(const Plan& plan, Count count, uint64_t seed);

/// The first fault of several interleavings and counts; "" if there is none. `runs` interleavings of each
/// count.
std::string any_fault_of(const Plan& plan, int runs, uint64_t seed);

}  // namespace lockstep::plan::reference
