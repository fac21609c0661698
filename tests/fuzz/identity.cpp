// Any bytes as an environment (NAME=value, separated by newlines or NULs): a refusal, or an identity that a
// job can have, that variables of others do not change, and that losing one variable does not turn into
// another rank.
#include "lockstep/launch/identity.h"

#include "fuzz/fuzz.h"
#include "lockstep/error.h"

namespace {

using lockstep::Environment;
using lockstep::Identity;
using lockstep::Launcher;
using lockstep::fuzz::require;

Environment environment_of(std::string_view text) {
  constexpr std::string_view kSeparators("\n\0", 2);
  Environment environment;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(kSeparators), text.size());
    const std::string_view entry = text.substr(0, end);
    if (const auto equals = entry.find('='); equals != std::string_view::npos) {
      environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return environment;
}

void check_numbers(const Identity& identity) {
  require(0 <= identity.rank && identity.rank < identity.world_size, "0 <= rank < world size");
  require(0 <= identity.local_rank && identity.local_rank < identity.local_world_size,
          "0 <= local rank < local world size");
  require(identity.local_world_size <= identity.world_size, "local world size <= world size");
  const int elsewhere = identity.world_size - identity.local_world_size;
  if (identity.nodes) {
    require(1 <= *identity.nodes && *identity.nodes - 1 <= elsewhere, "every other node has a rank");
    require(*identity.nodes > 1 || elsewhere == 0, "one node has all ranks");
  }
  if (identity.node_rank) {
    require(0 <= *identity.node_rank && *identity.node_rank < identity.nodes.value_or(identity.world_size),
            "0 <= node rank < nodes");
  }
  require(0 <= identity.master_port && identity.master_port <= 65535, "0 <= port <= 65535");
  require(identity.restart_count >= 0, "0 <= restarts");
}

void check(const Environment& environment, const Identity& identity) {
  check_numbers(identity);
  require(lockstep::to_string(identity).find_first_of("\n\r\x1b") == std::string::npos,
          "it prints on one line");
  if (identity.launcher == Launcher::kAlone) require(identity == Identity{}, "alone is rank 0 of 1");
  if (identity.launcher != Launcher::kMpirun && identity.world_size > 1) {
    require(!identity.master_addr.empty() && identity.master_port > 0, "ranks know where to meet");
  }
  Environment more = environment;
  more.emplace("SLURM_CPUS_PER_TASK", "2");
  more.emplace("OMPI_UNIVERSE_SIZE", "64");
  more.emplace("PMIX_RANK", "9");
  require(lockstep::identify(more) == identity, "variables that do not tell who I am change nothing");
}

void check_losses(const Environment& environment, const Identity& identity) {
  for (const auto& [name, value] : environment) {
    Environment rest = environment;
    rest.erase(name);
    try {
      const Identity other = lockstep::identify(rest);
      require(other.rank == identity.rank && other.world_size == identity.world_size,
              "losing one variable makes no other rank");
    } catch (const lockstep::UsageError& refusal) {
      lockstep::fuzz::require_readable(refusal);
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Environment environment = environment_of({reinterpret_cast<const char*>(data), size});
  Identity identity;
  try {
    identity = lockstep::identify(environment);
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
    return 0;
  }
  check(environment, identity);
  check_losses(environment, identity);
  return 0;
}
