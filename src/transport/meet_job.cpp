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

/// The port distinguishes jobs whose ids are equal: plain torchrun jobs all have the id "none". Beside an id
/// there is no address: ranks of one job may spell it as a name and as a number.
std::string name_on_all_nodes(const Identity& identity, std::string_view job) {
  return fmt::format("{} port {} restart {}", job, identity.master_port, identity.restart_count);
}

}  // namespace

std::string meeting_name(const Identity& identity) {
  std::string job = identity.job_id;
  if (job.empty()) {
    if (identity.master_port == 0 && identity.world_size > 1) {
      throw UsageError(fmt::format(
          "rank {} of {}: nothing distinguishes this job from another on this host: neither a job id nor "
          "MASTER_PORT is set; hint: export the same MASTER_PORT to all ranks of the job, and to no other "
          "job",
          identity.rank, identity.world_size));
    }
    const std::string& address = identity.master_addr;
    job = address == "127.0.0.1" || address == "::1" ? "localhost" : address;
  }
  return fmt::format("{} node {}", name_on_all_nodes(identity, job), identity.node_rank.value_or(0));
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
  const bool one_host = is_on_one_host(identity);
  // On a network, whoever connects has found the address, however it is spelled.
  const std::string name = one_host ? meeting_name(identity) : name_on_all_nodes(identity, identity.job_id);
  const MeetOptions options = {.rank = identity.rank,
                               .world = identity.world_size,
                               .name = fmt::format("{} {}", engine, name),
                               .deadline = deadline};
  return one_host ? std::move(meet_on_host(options, -1).control) : meet_on_network(options, network);
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
