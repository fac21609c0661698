#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace lockstep::launch {

// A subreaper inherits every orphan below it, so that its descendants are all processes that its ranks ever
// started, those included that left their session or whose parents are dead.

/// Makes this process the subreaper of all that it starts.
void become_subreaper();

/// The living processes below `ancestor` (zombies are not alive), in no order.
std::vector<pid_t> living_descendants(pid_t ancestor);

/// Sends `signal` to every living descendant of this process; returns to how many. A process that is gone by
/// then is no error, and a reused pid is never hit: each is held by a pidfd and looked at again before the
/// signal.
int signal_descendants(int signal);

/// SIGKILLs all descendants of this process and reaps them, those that they start meanwhile included. Returns
/// false if some are still there at the deadline (a process in an uninterruptible wait).
bool kill_descendants(std::chrono::steady_clock::time_point deadline);

}  // namespace lockstep::launch
