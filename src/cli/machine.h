#pragma once

#include "launch/environment.h"
#include "launch/job.h"

namespace lockstep::cli {

/// What a job's resolution needs to know of this machine.
launch::MachineFacts look_at_machine(const launch::Environment& environment);

}  // namespace lockstep::cli
