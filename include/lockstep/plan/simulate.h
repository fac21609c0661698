#pragma once

#include <map>

#include "lockstep/plan/plan.h"
#include "lockstep/plan/verify.h"

namespace lockstep::plan {

/// What a message costs: latency + bytes * seconds per byte.
struct Link {
  double latency_s = 0;
  double s_per_byte = 0;
};

/// A network of one or two levels, in the alpha-beta-gamma model. A rank has one port out and one port in,
/// both at once; a message holds the sender's way out and the receiver's way in for its whole time.
struct Network {
  Link between;                     ///< Between nodes; everywhere if ranks_per_node is 0.
  Link inside;                      ///< Inside a node.
  int ranks_per_node = 0;           ///< 0: one level.
  double reduce_s_per_byte = 0;     ///< To add one byte to another.
  std::map<int, double> slow = {};  ///< By rank: its messages and additions take so many times as long.
  std::map<std::pair<int, int>, double> slow_links = {};  ///< The same for the link from one rank to another.
};

struct Simulation {
  double time_s = 0;  ///< When the last rank is done.
  Traffic traffic;
};

/// Runs a plan on a virtual clock, step by step; the same result every time. The plan must be well formed:
/// ours are, and verify() tells of any other. Throws UsageError for one that deadlocks. O(world) memory, a
/// few tens of ns per step.
Simulation simulate(const Plan& plan, const Network& network, Count count, int element_bytes = 4);

}  // namespace lockstep::plan
