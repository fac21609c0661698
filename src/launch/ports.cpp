#include "launch/ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>

#include "launch/unique_fd.h"
#include "lockstep/error.h"

namespace lockstep::launch {

namespace {

/// 0 if a server could bind there now, else the error.
int try_bind(const sockaddr* address, socklen_t size) {
  const UniqueFd socket_fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_fd) return errno;
  const int on = 1;  // as servers do: a port in TIME_WAIT is free
  setsockopt(socket_fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return bind(socket_fd.get(), address, size) == 0 ? 0 : errno;
}

int lowest_ephemeral_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 0;
  file >> low;
  return low;
}

}  // namespace

int find_free_port() {
  constexpr int kLowest = 10000;
  int high = lowest_ephemeral_port() - 1;
  if (high < kLowest + 1000) high = 65535;  // a host that serves from nearly all ports
  std::random_device random;
  std::uniform_int_distribution<int> pick(kLowest, high);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int port = pick(random);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (try_bind(reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return port;
  }
  throw Error(fmt::format("no free TCP port found between {} and {} in 1000 tries", kLowest, high));
}

void require_free_port(const std::string& address, int port, const std::string& address_name,
                       const std::string& port_name) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (unknown != 0) {
    throw UsageError(fmt::format("{} {}: {}; hint: give the name or address of node 0", address_name, address,
                                 gai_strerror(unknown)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  int problem = 0;
  bool is_ours = false;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int error = try_bind(each->ai_addr, each->ai_addrlen);
    if (error == EADDRINUSE || error == EACCES) {
      throw UsageError(fmt::format("{} {}: {} on {}; hint: give another --master-port on every node",
                                   port_name, port, error == EADDRINUSE ? "in use" : std::strerror(error),
                                   address));
    }
    // A name may have an address of a family that this host does not speak, beside one that it does.
    if (error == 0) {
      is_ours = true;
    } else {
      problem = error;
    }
  }
  if (!is_ours) {
    throw UsageError(fmt::format(
        "{} {}: not an address of this host, which is node 0 ({}); hint: give the name or address "
        "of node 0, or this node's own --node-rank",
        address_name, address, std::strerror(problem)));
  }
}

}  // namespace lockstep::launch
