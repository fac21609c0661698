#include "transport/raw.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

#include "support/child.h"
#include "transport/greeting.h"

namespace lockstep::test {

namespace {

using launch::UniqueFd;

struct HostAddress {
  sockaddr_un address = {};
  socklen_t size = 0;

  explicit HostAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

sockaddr_in loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

}  // namespace

std::string socket_name(unsigned uid, const std::string& meeting) {
  const auto hash = transport::digest(fmt::format("{}/{}", uid, meeting));
  std::string text = "lockstep-";
  for (std::size_t i = 0; i < 16; ++i) text += fmt::format("{:02x}", hash[i]);
  return text;
}

bool is_bound(const std::string& meeting) {
  return read_file("/proc/net/unix").find(fmt::format("@{}", socket_name(geteuid(), meeting))) !=
         std::string::npos;
}

UniqueFd connect_on_host(unsigned uid, const std::string& meeting) {
  const HostAddress address(socket_name(uid, meeting));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), address.get(), address.size) != 0) fd.reset();
  return fd;
}

UniqueFd listen_on_host(const std::string& meeting) {
  const HostAddress address(socket_name(geteuid(), meeting));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(fd.get(), address.get(), address.size) != 0 || listen(fd.get(), 1) != 0) fd.reset();
  return fd;
}

UniqueFd connect_to_port(int port) {
  const sockaddr_in address = loopback(port);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

UniqueFd listen_on_port(int& port) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(fd.get(), 8) != 0) {
    fd.reset();
  }
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.sin_port);
  return fd;
}

UniqueFd accept_one(int listener) {
  return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
}

void send_bytes(int socket, const std::string& bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t some = send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (some <= 0) return;  // it has closed: for the test to see
    sent += static_cast<std::size_t>(some);
  }
}

std::string receive_bytes(int socket, std::size_t size) {
  constexpr int kPatienceMs = 60000;
  std::string bytes;
  while (bytes.size() < size) {
    pollfd waiting = {.fd = socket, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kPatienceMs) <= 0) break;
    std::array<char, 4096> piece{};
    const ssize_t got = recv(socket, piece.data(), std::min(piece.size(), size - bytes.size()), 0);
    if (got <= 0) break;
    bytes.append(piece.data(), static_cast<std::size_t>(got));
  }
  return bytes;
}

bool is_closed_by_peer(int socket) {
  constexpr int kPatienceMs = 60000;
  std::array<char, 4096> piece{};
  for (;;) {
    pollfd waiting = {.fd = socket, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kPatienceMs) <= 0) return false;
    if (recv(socket, piece.data(), piece.size(), 0) <= 0) return true;
  }
}

std::string listeners(int port) {
  std::string found;
  for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(read_file(file));
    std::string number;
    std::string local;
    std::string remote;
    std::string state;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      words >> number >> local >> remote >> state;
      if (state == "0A" && local.ends_with(fmt::format(":{:04X}", port))) found += local + "\n";
    }
  }
  return found;
}

}  // namespace lockstep::test
