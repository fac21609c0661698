#include "lockstep/launch/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "launch/environment.h"
#include "launch/hostlist.h"
#include "launch/place.h"
#include "launch/slurm.h"
#include "launch/variables.h"

namespace lockstep {
namespace {

using launch::completed;
using launch::kHandNames;
using launch::kMaxWorldSize;
using launch::kMpirunNames;
using launch::kSrunNames;
using launch::kTorchrunNames;
using launch::Place;
using launch::PlaceNames;
using launch::read_place;
using launch::require_agreement;
using launch::SlurmStep;
using launch::Variables;

Identity identity_at(const Place& place, Launcher launcher) {
  Identity identity;
  identity.rank = place.rank;
  identity.world_size = place.world_size;
  identity.local_rank = place.local_rank;
  identity.local_world_size = place.local_world_size;
  identity.node_rank = place.node_rank;
  identity.nodes = place.nodes;
  identity.launcher = launcher;
  return identity;
}

std::string master_addr(const Variables& variables) {
  const std::string& address = variables.text("MASTER_ADDR");
  if (!launch::may_be_host(address)) {
    variables.refuse(fmt::format("{} is not a host name or address", variables.shown("MASTER_ADDR")));
  }
  return address;
}

int master_port(const Variables& variables) {
  return variables.number("MASTER_PORT", 1, 65535);
}

// Where a launcher may leave the master to the user: what is set counts, what is not stays as it is.
void take_master(const Variables& variables, Identity& identity) {
  if (variables.has("MASTER_ADDR")) identity.master_addr = master_addr(variables);
  if (variables.has("MASTER_PORT")) identity.master_port = master_port(variables);
}

// What `lockstep run` and torchrun have in common.
Identity from_torchrun(const Variables& variables, Launcher launcher) {
  // Both always tell the node, so that only a part of their environment lacks it.
  variables.text(kTorchrunNames.node_rank);
  variables.text(kTorchrunNames.nodes);
  Identity identity = identity_at(read_place(variables, kTorchrunNames), launcher);
  identity.master_addr = master_addr(variables);
  identity.master_port = master_port(variables);
  identity.restart_count = variables.number("TORCHELASTIC_RESTART_COUNT", 0, std::numeric_limits<int>::max());
  return identity;
}

// What an inner launcher sets to the same value as an outer one that started its ranks one by one; the node's
// numbers are left out, since torchrun counts launchers.
constexpr PlaceNames kRanksAlone{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "", ""};

// Only `lockstep run` gives all nodes equally many ranks, numbered node by node.
void require_even_nodes(const Identity& identity, const Variables& variables) {
  const int node = *identity.node_rank, nodes = *identity.nodes;
  const int64_t local_world = identity.local_world_size;
  if (nodes * local_world != identity.world_size) {
    variables.refuse(fmt::format("{} contradicts GROUP_WORLD_SIZE * LOCAL_WORLD_SIZE = {} * {}",
                                 variables.shown("WORLD_SIZE"), nodes, local_world));
  }
  if (node * local_world + identity.local_rank != identity.rank) {
    variables.refuse(fmt::format("{} contradicts GROUP_RANK * LOCAL_WORLD_SIZE + LOCAL_RANK = {} * {} + {}",
                                 variables.shown("RANK"), node, local_world, identity.local_rank));
  }
}

Identity from_lockstep(const Environment& environment) {
  const Variables variables(
      environment, "LOCKSTEP_JOB_ID",
      "`lockstep run` sets these variables for each rank; start the program through it, with no other "
      "launcher in between");
  Identity identity = from_torchrun(variables, Launcher::kLockstep);
  identity.job_id = variables.text("LOCKSTEP_JOB_ID");
  if (variables.text("TORCHELASTIC_RUN_ID") != identity.job_id) {
    variables.refuse(fmt::format("{} contradicts {}", variables.shown("TORCHELASTIC_RUN_ID"),
                                 variables.shown("LOCKSTEP_JOB_ID")));
  }
  require_agreement({.node_rank = identity.node_rank}, kTorchrunNames, {.node_rank = "NODE_RANK"}, variables);
  require_even_nodes(identity, variables);
  // `lockstep run` takes outer launchers' ranks away: one that is there comes from a launcher inside of it.
  if (variables.has(kMpirunNames.rank)) {
    require_agreement(read_place(variables, kMpirunNames), kMpirunNames, kRanksAlone, variables);
  } else if (variables.has(kSrunNames.rank)) {
    if (const auto step = launch::slurm_step(environment)) {
      require_agreement(step->place, kSrunNames, kRanksAlone, variables);
    }
  }
  return identity;
}

Identity from_torchrun(const Environment& environment) {
  const Variables variables(
      environment, "TORCHELASTIC_RUN_ID",
      "torchrun sets these variables for each rank; start one torchrun on each node, or one task "
      "for each rank without torchrun");
  Identity identity = from_torchrun(variables, Launcher::kTorchrun);
  identity.job_id = variables.text("TORCHELASTIC_RUN_ID");
  // One outer task on a node is the torchrun; several are several torchruns, or ranks by themselves.
  if (variables.has(kMpirunNames.rank)) {
    const Place outer = read_place(variables, kMpirunNames);
    if (outer.local_world_size > 1) require_agreement(outer, kMpirunNames, kRanksAlone, variables);
  } else if (const auto step = launch::slurm_step(environment)) {
    if (step->place.local_world_size > 1) require_agreement(step->place, kSrunNames, kRanksAlone, variables);
  }
  return identity;
}

// What a user may set by hand beside mpirun or srun. NNODES is left out: it is an input of launchers.
constexpr PlaceNames kBesideLauncher{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", ""};

Identity from_mpirun(const Environment& environment, std::string_view marker) {
  const Variables variables(
      environment, marker,
      "mpirun sets OMPI_COMM_WORLD_* for each rank; start the program through it, and leave RANK, "
      "WORLD_SIZE and their like unset");
  const Place place = read_place(variables, kMpirunNames);
  require_agreement(place, kMpirunNames, kBesideLauncher, variables);
  Identity identity = identity_at(place, Launcher::kMpirun);
  if (variables.has("PMIX_NAMESPACE")) identity.job_id = variables.text("PMIX_NAMESPACE");
  take_master(variables, identity);
  return identity;
}

Identity from_srun(const Environment& environment, const SlurmStep& step) {
  const Variables variables = launch::slurm_variables(environment);
  require_agreement(step.place, kSrunNames, kBesideLauncher, variables);
  Identity identity = identity_at(step.place, Launcher::kSrun);
  identity.job_id = step.id;
  identity.restart_count = step.restart_count;
  identity.master_addr = step.first_host;
  identity.master_port = step.master_port;
  take_master(variables, identity);
  return identity;
}

Place place_by_hand(const Variables& variables) {
  if (variables.has(kHandNames.local_rank) || variables.has(kHandNames.local_world_size)) {
    return read_place(variables, kHandNames);
  }
  Place place;
  place.world_size = variables.number(kHandNames.world_size, 1, kMaxWorldSize);
  place.rank = variables.number(kHandNames.rank, 0, place.world_size - 1);
  if (variables.has(kHandNames.nodes)) place.nodes = variables.number(kHandNames.nodes, 1, place.world_size);
  if (variables.has(kHandNames.node_rank)) {
    place.node_rank = variables.number(kHandNames.node_rank, 0, place.nodes.value_or(place.world_size) - 1);
  }
  if (place.nodes == 1) {
    place.local_rank = place.rank;
    place.local_world_size = place.world_size;
  }
  return completed(place, variables, kHandNames);
}

Identity from_hand(const Environment& environment, std::string_view marker) {
  const Variables variables(
      environment, marker,
      "set RANK and WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE together, and MASTER_ADDR and "
      "MASTER_PORT; or start the program through `lockstep run`, which sets them all");
  Identity identity = identity_at(place_by_hand(variables), Launcher::kEnvironment);
  take_master(variables, identity);
  if (identity.world_size > 1) {
    identity.master_addr = master_addr(variables);
    identity.master_port = master_port(variables);
  }
  return identity;
}

// The first of the variables of `names` that say that this process is a rank; empty if none is set.
std::string_view first_set(const Environment& environment, const PlaceNames& names) {
  for (const std::string_view name :
       {names.rank, names.world_size, names.local_rank, names.local_world_size}) {
    if (environment.contains(std::string(name))) return name;
  }
  return {};
}

}  // namespace

Identity identify(const Environment& environment) {
  if (environment.contains("LOCKSTEP_JOB_ID")) return from_lockstep(environment);
  if (environment.contains("TORCHELASTIC_RUN_ID")) return from_torchrun(environment);
  if (const auto marker = first_set(environment, kMpirunNames); !marker.empty()) {
    return from_mpirun(environment, marker);
  }
  if (const auto step = launch::slurm_step(environment)) return from_srun(environment, *step);
  if (const auto marker = first_set(environment, kHandNames); !marker.empty()) {
    return from_hand(environment, marker);
  }
  // A batch script is task 0; any other task has a step, and this one has lost its variables.
  const auto task = environment.find(std::string(kSrunNames.rank));
  if (task != environment.end() && task->second != "0") {
    launch::slurm_variables(environment).text("SLURM_STEP_ID");
  }
  return {};
}

Identity identify() {
  return identify(launch::current_environment());
}

std::string_view to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::kAlone:
      return "alone";
    case Launcher::kLockstep:
      return "lockstep run";
    case Launcher::kTorchrun:
      return "torchrun";
    case Launcher::kMpirun:
      return "mpirun";
    case Launcher::kSrun:
      return "srun";
    case Launcher::kEnvironment:
      return "environment";
  }
  return "unknown";
}

std::string to_string(const Identity& identity) {
  const auto known = [](std::optional<int> number) { return number ? std::to_string(*number) : "?"; };
  std::string text = fmt::format("rank {} of {} (local rank {} of {}, node {} of {})", identity.rank,
                                 identity.world_size, identity.local_rank, identity.local_world_size,
                                 known(identity.node_rank), known(identity.nodes));
  if (identity.launcher == Launcher::kAlone) return text + ", alone";
  if (!identity.master_addr.empty()) {
    const bool ipv6 = identity.master_addr.find(':') != std::string::npos;
    text += ", master " + (ipv6 ? "[" + identity.master_addr + "]" : identity.master_addr);
    if (identity.master_port != 0) text += fmt::format(":{}", identity.master_port);
  }
  text += fmt::format(", restart {}", identity.restart_count);
  if (!identity.job_id.empty()) text += fmt::format(", job {}", identity.job_id);
  return text + fmt::format(", started by {}", to_string(identity.launcher));
}

}  // namespace lockstep
