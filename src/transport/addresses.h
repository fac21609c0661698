#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "launch/unique_fd.h"
#include "transport/meeting.h"

namespace lockstep::transport {

/// A socket address, of IPv4 or IPv6.
struct Address {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  bool is_wildcard() const;  ///< 0.0.0.0 or ::
  bool is_loopback() const;
  /// "127.0.0.1:29500", "[::1]:29500"
  std::string text() const;
  std::string host_text() const;  ///< Without the port.
};

/// What `network.address` stands for. Throws UsageError if it is no name, stands for all addresses, or if the
/// port is none. Empty if the name service does not answer now.
std::vector<Address> resolve(const Meeting& meeting, const NetworkOptions& network);

/// Listens on the first of `addresses` that can be bound, and on no other; `bound` becomes that one. Throws
/// UsageError if there is none.
launch::UniqueFd listen_on(const Meeting& meeting, const std::vector<Address>& addresses, Address& bound);

/// Connects, or returns an empty descriptor and says why in `why`.
launch::UniqueFd try_connect(const Address& address, Deadline deadline, std::string& why);

/// Small frames go at once, and a peer whose host is gone is noticed in about ten seconds.
void configure_tcp(int socket);

}  // namespace lockstep::transport
