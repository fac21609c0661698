#pragma once

#include <sys/types.h>

#include "launch/environment.h"
#include "launch/job.h"

namespace lockstep::launch {

/// How the launcher speaks to its user.
struct Console {
  bool colour_stdout = false;  ///< Prefixes in a colour per rank.
  bool colour_stderr = false;
};

/// Runs the job in this process, which must be a subreaper without other children or threads: starts the
/// ranks, watches them, passes on signals, ends all of them when one fails or when the process `front` dies,
/// restarts the group as often as the job allows, reports. Returns the exit code; no process of the job is
/// left then.
int keep_job(const Job& job, const Environment& inherited, const Console& console, pid_t front);

}  // namespace lockstep::launch
