#pragma once

#include <string>

namespace lockstep::launch {

/// A TCP port that is free on the loopback interface now. It lies below the range from which the kernel takes
/// ports for outgoing connections, so that between now and its use only another server could take it.
int find_free_port();

/// Throws UsageError if `address` is this host's and something listens on `port` there.
void require_free_port(const std::string& address, int port);

}  // namespace lockstep::launch
