#include "support/hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <stdexcept>

#include "launch/failure_report.h"
#include "transport/descriptors.h"

namespace lockstep::test {

namespace {

using launch::UniqueFd;

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

/// Runs `act` in a child. What it throws, the parent throws; `meanwhile` runs in the parent once `act` is
/// over, while the child still is what it made of itself.
void in_child(const std::function<void()>& act, const std::function<void(pid_t)>& meanwhile = {}) {
  int said[2];
  int gone[2];
  if (pipe2(said, O_CLOEXEC) != 0 || pipe2(gone, O_CLOEXEC) != 0) refuse("pipe");
  UniqueFd hear(said[0]), say(said[1]), wait(gone[0]), go(gone[1]);
  const pid_t child = fork();
  if (child < 0) refuse("fork");
  if (child == 0) {
    hear.reset();
    go.reset();
    try {
      act();
    } catch (const std::exception& error) {
      if (write(say.get(), error.what(), std::strlen(error.what())) < 0) _exit(2);
      _exit(1);
    }
    say.reset();
    char none = 0;
    if (read(wait.get(), &none, 1) < 0) _exit(2);
    _exit(0);
  }
  say.reset();
  char text[1024];
  const ssize_t size = read(hear.get(), text, sizeof text);
  if (size <= 0 && meanwhile) meanwhile(child);
  go.reset();
  int status = 0;
  waitpid(child, &status, 0);
  if (size > 0) throw std::runtime_error(std::string(text, static_cast<size_t>(size)));
  if (status != 0) throw std::runtime_error(launch::describe_end(status));
}

/// The namespace of the kind `name` that `unshare` gives to a child.
UniqueFd make_namespace(const char* name, const std::function<void()>& unshare) {
  UniqueFd made;
  in_child(unshare, [&](pid_t child) {
    made.reset(open(fmt::format("/proc/{}/ns/{}", child, name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!made) refuse("cannot hold a namespace");
  });
  return made;
}

void write_file(const char* file, const std::string& text) {
  if (!(std::ofstream(file) << text << std::flush)) refuse(fmt::format("cannot write {}", file));
}

/// This process becomes root of a user namespace of its own.
void unshare_users() {
  const auto user = geteuid();
  const auto group = getegid();
  if (unshare(CLONE_NEWUSER) != 0) refuse("cannot make a user namespace");
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", fmt::format("0 {} 1", user));
  write_file("/proc/self/gid_map", fmt::format("0 {} 1", group));
}

/// Executes `ip` or `tc`, which read commands from `lines`; what they complain of goes to `errors`.
[[noreturn]] void execute(const char* program, int lines, int errors) {
  const char* const path = getenv("PATH");
  setenv("PATH", fmt::format("{}:/usr/sbin:/sbin", path == nullptr ? "" : path).c_str(), 1);
  dup2(lines, STDIN_FILENO);
  dup2(errors, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execlp(program, program, "-batch", "-", nullptr);
  refuse(fmt::format("cannot run {} (package iproute2)", program));
}

UniqueFd memory_file(const std::string& text) {
  UniqueFd file(memfd_create("hosts", MFD_CLOEXEC));
  if (!file || write(file.get(), text.data(), text.size()) < 0 || lseek(file.get(), 0, SEEK_SET) != 0)
    refuse("memfd");
  return file;
}

std::string read_all(int file) {
  char text[2048];
  const ssize_t size = pread(file, text, sizeof text, 0);
  return {text, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

std::string port_of(int host) {
  return fmt::format("port{}", host);
}

}  // namespace

Hosts::Hosts(const Options& options) {
  if (geteuid() != 0) users_ = make_namespace("user", unshare_users);
  switch_ = make_network();
  set_up(switch_.get(), "ip", "link add switch type bridge\nlink set switch up\n");
  for (int host = 0; host < options.count; ++host) {
    networks_.push_back(make_network());
    const int network = networks_.back().get();
    const std::string port = port_of(host);
    set_up(switch_.get(), "ip",
           fmt::format("link add {0} type veth peer name eth0 netns /proc/self/fd/{1}\n"
                       "link set {0} master switch up\n",
                       port, network));
    set_up(network, "ip",
           fmt::format("link set lo up\naddress add {}/24 dev eth0\nlink set eth0 up\n", address(host)));
    if (options.rate.empty()) continue;
    const std::string shape =
        fmt::format("root tbf rate {} burst {} latency {}\n", options.rate, options.burst, options.latency);
    set_up(network, "tc", "qdisc add dev eth0 " + shape);
    set_up(switch_.get(), "tc", fmt::format("qdisc add dev {} {}", port, shape));
  }
}

const std::string& Hosts::why_not() {
  static const std::string why = []() -> std::string {
    try {
      Hosts({.count = 1, .rate = "1gbit"});
      return "";
    } catch (const std::exception& error) {
      return fmt::format("network namespaces cannot be made here: {}", error.what());
    }
  }();
  return why;
}

std::string Hosts::address(int host) {
  return fmt::format("10.77.0.{}", host + 1);
}

void Hosts::enter(int host) const {
  enter_network(networks_.at(static_cast<size_t>(host)).get());
}

UniqueFd Hosts::socket(int host) const {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) refuse("socketpair");
  const UniqueFd here(ends[0]), there(ends[1]);
  in_child([&] {
    enter(host);
    const UniqueFd made(::socket(AF_INET, SOCK_STREAM, 0));
    if (!made) refuse("socket");
    transport::send_with_descriptors(there.get(), "x", {made.get()}, transport::Deadline::max());
  });
  char byte = 0;
  std::vector<UniqueFd> received;
  transport::receive_with_descriptors(here.get(), &byte, 1, received);
  return std::move(received.at(0));
}

std::string Hosts::path(int host) const {
  return fmt::format("/proc/{}/fd/{}", getpid(), networks_.at(static_cast<size_t>(host)).get());
}

void Hosts::cut(int host) const {
  set_up(switch_.get(), "ip", fmt::format("link set {} nomaster\n", port_of(host)));
}

void Hosts::mend(int host) const {
  set_up(switch_.get(), "ip", fmt::format("link set {} master switch\n", port_of(host)));
}

void Hosts::cut_between(int one, int other) const {
  // Each sends to an Ethernet address that nobody has.
  for (const auto& [host, peer] : {std::pair(one, other), std::pair(other, one)}) {
    set_up(
        networks_.at(static_cast<size_t>(host)).get(), "ip",
        fmt::format("neighbour replace {} lladdr 02:00:00:00:00:00 nud permanent dev eth0\n", address(peer)));
  }
}

void Hosts::enter_network(int network) const {
  if (users_ && setns(users_.get(), CLONE_NEWUSER) != 0) refuse("cannot enter the hosts' user namespace");
  if (setns(network, CLONE_NEWNET) != 0) refuse("cannot enter a host");
  prctl(PR_SET_DUMPABLE, 1);  // the parent may look into /proc of one who changed its user, too
}

UniqueFd Hosts::make_network() const {
  return make_namespace("net", [this] {
    if (users_ && setns(users_.get(), CLONE_NEWUSER) != 0) refuse("cannot enter the hosts' user namespace");
    if (unshare(CLONE_NEWNET) != 0) refuse("cannot make a network namespace");
    prctl(PR_SET_DUMPABLE, 1);  // so that the parent may open it
  });
}

void Hosts::set_up(int network, const char* program, const std::string& lines) const {
  const UniqueFd commands = memory_file(lines);
  const UniqueFd errors = memory_file("");
  try {
    in_child([&] {
      enter_network(network);
      // The program names other namespaces by their descriptors, which must stay open for it.
      for (const auto& other : networks_) fcntl(other.get(), F_SETFD, 0);
      execute(program, commands.get(), errors.get());
    });
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: {}\n{}", program, error.what(), read_all(errors.get())));
  }
}

}  // namespace lockstep::test
