#pragma once

#include <memory>

#include "lockstep/launch/identity.h"
#include "transport/job.h"

namespace lockstep::transport {

/// The engine `shm`: all ranks are processes on this host. They meet through an abstract unix socket and map
/// each other's memory; no port is opened and nothing has a name in the file system. Throws UsageError if the
/// ranks are not all on one node, TimeoutError naming who did not come by the deadline.
std::unique_ptr<Job> connect_shm(const Identity& identity, Control::Clock::time_point deadline);

}  // namespace lockstep::transport
