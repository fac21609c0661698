#pragma once

#include <functional>
#include <span>

#include "lab/world.h"

namespace lab {

/// Collectives that later lessons build on: ours, or, with `lockstep lab check N --mine`, those that the
/// learner wrote.
struct Collectives {
  std::function<void(Rank&)> barrier;
  std::function<void(Rank&, std::span<float>, int root)> broadcast;
  std::function<void(Rank&, std::span<float>)> all_reduce;  ///< Sum, in place.
};

/// The ones in force; what a learner's code provides replaces a member before the check runs.
Collectives& collectives();

/// For lessons that are to write these: from here on each of them refuses to work, as `library called`.
void forbid_collectives();

}  // namespace lab
