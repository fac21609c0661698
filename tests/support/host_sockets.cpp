#include "support/host_sockets.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <sstream>
#include <stdexcept>

#include "support/child.h"

namespace lockstep::test {

namespace {

using launch::UniqueFd;

sockaddr_in at(int host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, Hosts::address(host).c_str(), &address.sin_addr);
  return address;
}

/// "0100007F:6F" as "127.0.0.1:111".
std::string readable(const std::string& local) {
  const size_t colon = local.find(':');
  const std::string port = std::to_string(std::stoul(local.substr(colon + 1), nullptr, 16));
  if (colon != 8) return fmt::format("ipv6 {}:{}", local.substr(0, colon), port);
  const in_addr address = {static_cast<in_addr_t>(std::stoul(local.substr(0, colon), nullptr, 16))};
  char text[INET_ADDRSTRLEN];
  return fmt::format("{}:{}", inet_ntop(AF_INET, &address, text, sizeof text), port);
}

}  // namespace

UniqueFd listen_on(const Hosts& hosts, int host, int& port) {
  UniqueFd socket = hosts.socket(host);
  sockaddr_in address = at(host, 0);
  socklen_t size = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket.get(), plain, size) != 0 || listen(socket.get(), 16) != 0 ||
      getsockname(socket.get(), plain, &size) != 0) {
    throw std::runtime_error("cannot listen on a host");
  }
  port = ntohs(address.sin_port);
  return socket;
}

UniqueFd connect_between(const Hosts& hosts, int from, int to, int port) {
  UniqueFd socket = hosts.socket(from);
  const sockaddr_in address = at(to, port);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) socket.reset();
  return socket;
}

std::set<std::string> listeners_on(const Hosts& hosts, int host) {
  Child look({"cat", "/proc/self/net/tcp", "/proc/self/net/tcp6"}, {.before = [&] { hosts.enter(host); }});
  if (look.wait() != 0) throw std::runtime_error(look.errors());
  std::istringstream lines(look.output());
  std::set<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state;
    words >> number >> local >> remote >> state;
    if (state == "0A") found.insert(readable(local));
  }
  return found;
}

}  // namespace lockstep::test
