#include "transport/addresses.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "launch/printable.h"
#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

using launch::UniqueFd;

/// The address as IPv6, in which IPv4 has its place: one set of questions for both.
in6_addr as_ipv6(const Address& address) {
  if (address.storage.ss_family == AF_INET6) {
    return reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
  }
  in6_addr mapped = {};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
  std::memcpy(mapped.s6_addr + 12, &reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr, 4);
  return mapped;
}

std::string numeric(const Address& address, bool with_port) {
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "?";
  getnameinfo(address.get(), address.size, host, sizeof host, port, sizeof port,
              NI_NUMERICHOST | NI_NUMERICSERV);
  if (!with_port) return host;
  return address.storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                               : fmt::format("{}:{}", host, port);
}

void set_option(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

/// Whether the socket is connected to itself, as TCP makes it when it takes the very port that nobody listens
/// on yet: rank 0 could then not have it.
bool is_own_end(int socket) {
  Address here;
  Address there;
  here.size = there.size = sizeof(sockaddr_storage);
  getsockname(socket, here.get(), &here.size);
  getpeername(socket, there.get(), &there.size);
  return here.text() == there.text();
}

}  // namespace

bool Address::is_wildcard() const {
  const in6_addr address = as_ipv6(*this);
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    return std::all_of(address.s6_addr + 12, address.s6_addr + 16, [](auto byte) { return byte == 0; });
  }
  return IN6_IS_ADDR_UNSPECIFIED(&address);
}

bool Address::is_loopback() const {
  const in6_addr address = as_ipv6(*this);
  return IN6_IS_ADDR_V4MAPPED(&address) ? address.s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(&address);
}

std::string Address::text() const {
  return numeric(*this, true);
}

std::string Address::host_text() const {
  return numeric(*this, false);
}

std::vector<Address> resolve(const Meeting& meeting, const NetworkOptions& network) {
  const std::string name = launch::printable(network.address);
  const auto refuse = [&](const std::string& what) { throw UsageError(meeting.text(what)); };
  if (network.port < 1 || network.port > 65535) {
    refuse(
        fmt::format("port {}, expected 1 to 65535; hint: give all ranks the same free port of rank 0's host",
                    network.port));
  }
  if (network.address.empty())
    refuse("rank 0 has no address; hint: give the name or address of rank 0's host");
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(network.address.c_str(), std::to_string(network.port).c_str(), &wanted, &list);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, [](addrinfo* first) {
    if (first != nullptr) freeaddrinfo(first);
  });
  if (error == EAI_AGAIN) return {};
  if (error != 0) {
    refuse(fmt::format("address '{}': {}; hint: give the name or address of rank 0's host", name,
                       error == EAI_SYSTEM ? error_text(errno) : gai_strerror(error)));
  }
  std::vector<Address> found;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Address address;
    address.size = entry->ai_addrlen;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    if (address.is_wildcard()) {
      refuse(fmt::format(
          "address '{}' stands for every address of the host, expected one; hint: give the address "
          "by which the other ranks reach rank 0, such as 127.0.0.1 on one host",
          name));
    }
    found.push_back(address);
  }
  return found;
}

UniqueFd listen_on(const Meeting& meeting, const std::vector<Address>& addresses, Address& bound) {
  std::string why = "the name service does not know it now";
  for (const Address& address : addresses) {
    UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket) {
      set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // a port in TIME_WAIT is free
      if (bind(socket.get(), address.get(), address.size) == 0 && listen(socket.get(), SOMAXCONN) == 0) {
        bound = address;
        return socket;
      }
    }
    why = fmt::format("{}: {}", address.text(), error_text(errno));
    if (errno == EADDRINUSE) break;  // its other addresses may be free, but the others would come here
  }
  throw UsageError(
      meeting.text(fmt::format("cannot listen on {}; hint: rank 0 must run on the host of that "
                               "address, once, and its port must be free",
                               why)));
}

UniqueFd try_connect(const Address& address, Deadline deadline, std::string& why) {
  UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = socket ? 0 : errno;
  if (error == 0 && connect(socket.get(), address.get(), address.size) != 0) error = errno;
  if (error == EINPROGRESS || error == EINTR) {
    error = ETIMEDOUT;
    socklen_t size = sizeof error;
    if (wait_for(socket.get(), POLLOUT, deadline))
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0 && is_own_end(socket.get())) error = ECONNREFUSED;
  if (error == 0) return socket;
  why = fmt::format("{}: {}", address.text(), error_text(error));
  return {};
}

void configure_tcp(int socket) {
  constexpr int kSilentS = 2;
  constexpr int kProbeS = 2;
  constexpr int kProbes = 4;
  constexpr int kUnansweredMs = 10000;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kSilentS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMs);
}

}  // namespace lockstep::transport
