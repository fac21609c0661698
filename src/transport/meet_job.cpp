#include "transport/meet_job.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>

#include "launch/number.h"
#include "launch/printable.h"
#include "lockstep/error.h"
#include "transport/addresses.h"

namespace lockstep::transport {

namespace {

std::string value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace

std::string meeting_name(const Identity& identity) {
  const std::string job = identity.job_id.empty()
                              ? fmt::format("{}:{}", identity.master_addr, identity.master_port)
                              : identity.job_id;
  return fmt::format("{} restart {} node {}", job, identity.restart_count, identity.node_rank.value_or(0));
}

bool is_on_one_host(const Identity& identity) {
  return identity.local_world_size == identity.world_size;
}

NetworkOptions network_of(const Identity& identity, const Environment& environment) {
  NetworkOptions network = {.address = identity.master_addr,
                            .port = identity.master_port == 0 ? 0 : identity.master_port + 1,
                            .token = value_of(environment, "LOCKSTEP_TOKEN")};
  if (const std::string port = value_of(environment, "LOCKSTEP_PORT"); !port.empty()) {
    network.port = launch::parse_number("LOCKSTEP_PORT", port, 1, 65535);
  }
  return network;
}

std::unique_ptr<Control> meet_job(std::string_view engine, const Identity& identity,
                                  const NetworkOptions& network, Control::Clock::time_point deadline) {
  MeetOptions options = {.rank = identity.rank,
                         .world = identity.world_size,
                         .name = fmt::format("{} {}", engine, meeting_name(identity)),
                         .deadline = deadline};
  if (is_on_one_host(identity)) return std::move(meet_on_host(options, -1).control);
  // The same on all nodes.
  options.name =
      fmt::format("{} {} restart {}", engine, identity.job_id.empty() ? network.address : identity.job_id,
                  identity.restart_count);
  return meet_on_network(options, network);
}

std::string own_address_towards(const std::string& address) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(
        fmt::format("address '{}': {}; hint: give the name or address of rank 0's host in MASTER_ADDR",
                    launch::printable(address), why));
  };
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  // Any port: a datagram socket that is connected sends nothing, but knows where it would send from.
  if (const int error = getaddrinfo(address.c_str(), "9", &wanted, &list); error != 0) {
    refuse(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  int error = 0;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const launch::UniqueFd socket(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    Address own;
    own.size = sizeof own.storage;
    if (socket && connect(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        getsockname(socket.get(), own.get(), &own.size) == 0) {
      return own.host_text();
    }
    error = errno;
  }
  refuse(error_text(error));
  return {};
}

}  // namespace lockstep::transport
