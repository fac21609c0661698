#pragma once

#include <optional>
#include <vector>

namespace lockstep::launch {

/// A physical core, with those of its hardware threads that this process may use.
struct Core {
  std::vector<int> cpus;  ///< Numbers as the kernel counts them, rising.
};

/// The cores that this process may use (sched_getaffinity), in topology order: neighbours share caches.
std::vector<Core> allowed_cores();

/// How many cores' worth of work fits: the allowed cores, or fewer where a control group grants less time
/// (`cpu_quota`, in cores). At least 1. A part of a core counts as none: a throttled rank holds up all
/// others.
int usable_cores(const std::vector<Core>& cores, std::optional<double> cpu_quota);

/// The same for this process.
int usable_cores();

/// The CPUs of each rank: neighbouring cores, as many for one rank as for another (one more for the first
/// ranks where they do not divide evenly), each core in exactly one share. Empty when there are more ranks
/// than cores, or no ranks.
std::vector<std::vector<int>> share_cores(const std::vector<Core>& cores, int ranks);

/// How many threads each of `ranks` may keep busy: its share of the cores, and at least 1.
int threads_per_rank(int cores, int ranks);

}  // namespace lockstep::launch
