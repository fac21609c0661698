#pragma once

#include "launch/environment.h"
#include "launch/job.h"
#include "launch/keeper.h"

namespace lockstep::launch {

/// Runs the job and returns its exit code: the first failed rank's, 128 + signal for a signal.
///
/// Two processes guard each other. The front (the caller: what the user's shell knows) passes signals on and
/// waits; the keeper, its child in a session of its own, owns the ranks. Both are subreapers: when the front
/// is killed the keeper sees it and kills all; when the keeper is killed its processes fall to the front,
/// which kills all. Call it from a process without other children or threads. It returns in both processes;
/// the caller then exits.
int launch_job(const Job& job, const Environment& inherited, const Console& console);

}  // namespace lockstep::launch
