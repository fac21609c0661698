#pragma once

#include <string>

namespace lockstep::launch {

/// A TCP port that is free on the loopback interface now. It lies below the range from which the kernel takes
/// ports for outgoing connections, so that between now and its use only another server could take it.
int find_free_port();

/// Throws UsageError unless a server on this host could listen on `port` of `address`, and of every other
/// address of that name that is this host's. The names are of the flags or variables that told the values.
void require_free_port(const std::string& address, int port,
                       const std::string& address_name = "--master-addr",
                       const std::string& port_name = "--master-port");

}  // namespace lockstep::launch
