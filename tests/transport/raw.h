#pragma once

#include <string>

#include "launch/unique_fd.h"

namespace lockstep::test {

/// The abstract socket of user `uid`'s meeting, without its leading NUL.
std::string socket_name(unsigned uid, const std::string& meeting);
/// Whether somebody has bound the socket of this user's meeting.
bool is_bound(const std::string& meeting);

/// Bare sockets, by which a test plays a stranger; empty if nobody listens.
launch::UniqueFd connect_on_host(unsigned uid, const std::string& meeting);
launch::UniqueFd listen_on_host(const std::string& meeting);
launch::UniqueFd connect_to_port(int port);
/// On 127.0.0.1, at a port that `port` becomes.
launch::UniqueFd listen_on_port(int& port);
launch::UniqueFd accept_one(int listener);

void send_bytes(int socket, const std::string& bytes);
/// As many bytes as `size` says, or fewer if the peer closes first or says nothing for a long time.
std::string receive_bytes(int socket, std::size_t size);
/// Whether the peer closes, whatever it says before.
bool is_closed_by_peer(int socket);

/// Local addresses, as /proc/net/tcp and tcp6 have them, of those who listen on `port`.
std::string listeners(int port);

}  // namespace lockstep::test
