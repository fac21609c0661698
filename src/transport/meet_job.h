#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lockstep/launch/identity.h"
#include "transport/control.h"

namespace lockstep::transport {

/// What ranks of one job on one node call their meeting: job id, master port, restart and node; the address
/// only if there is no job id. Throws UsageError if there is neither id nor port.
std::string meeting_name(const Identity& identity);

/// Whether all ranks are on this node, as far as the launcher tells.
bool is_on_one_host(const Identity& identity);

/// Where ranks on several hosts meet, by what the environment says: MASTER_ADDR, LOCKSTEP_PORT (MASTER_PORT +
/// 1 if not set: torchrun may listen on MASTER_PORT itself), LOCKSTEP_TOKEN. Throws UsageError if the port is
/// not one.
NetworkOptions network_of(const Identity& identity, const Environment& environment);

/// The control plane of the job on this engine: on one host through a unix socket, between hosts over TCP.
/// Throws UsageError if something that the latter needs is missing.
std::unique_ptr<Control> meet_job(std::string_view engine, const Identity& identity,
                                  const NetworkOptions& network, Control::Clock::time_point deadline);

/// This host's address on the way to `address`, as numbers. Throws UsageError if there is no way.
std::string own_address_towards(const std::string& address);

}  // namespace lockstep::transport
