#pragma once

#include <set>
#include <string>

#include "support/hosts.h"

namespace lockstep::test {

// Bare sockets on hosts, by which a test plays a stranger, and what is to be seen there.

/// Listens on the host's address, at a port that `port` becomes.
launch::UniqueFd listen_on(const Hosts& hosts, int host, int& port);
/// Connects from one host to another's port; empty if nobody listens there.
launch::UniqueFd connect_between(const Hosts& hosts, int from, int to, int port);

/// Who listens there: "10.77.0.1:29501", "0.0.0.0:80", and IPv6 as "ipv6 <hexadecimal>:80".
std::set<std::string> listeners_on(const Hosts& hosts, int host);

}  // namespace lockstep::test
