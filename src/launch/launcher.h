#pragma once

#include "launch/environment.h"
#include "launch/job.h"
#include "launch/keeper.h"

namespace lockstep::launch {

/// Runs the job, guarded by two processes (run_guarded() says how and what it asks of the caller), and
/// returns its exit code: the first failed rank's, 128 + signal for a signal.
int launch_job(const Job& job, const Environment& inherited, const Console& console);

}  // namespace lockstep::launch
