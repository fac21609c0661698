#pragma once

#include <memory>

#include "lockstep/launch/identity.h"
#include "transport/job.h"

namespace lockstep::transport {

/// The engine `gloo`: ranks on any hosts, TCP between every two of them, by Gloo's library. On one host it
/// uses the loopback address alone; between hosts the address that leads to MASTER_ADDR, and LOCKSTEP_TOKEN
/// must be set. Throws UsageError if it was not built or if something is missing, TimeoutError naming who did
/// not come by the deadline.
std::unique_ptr<Job> connect_gloo(const Identity& identity, Control::Clock::time_point deadline);

}  // namespace lockstep::transport
