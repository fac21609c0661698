#include "launch/outer_launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "lockstep/error.h"
#include "lockstep/launch/identity.h"

namespace lockstep::launch {

namespace {

constexpr std::array<std::string_view, 3> kPrefixes = {"SLURM_", "OMPI_", "PMIX_"};

/// What tells one task from another. The rest (the job's id and node list, mpirun's tuning) may be of use to
/// the ranks.
constexpr std::array<std::string_view, 10> kTaskPrefixes = {
    "SLURM_PROCID", "SLURM_LOCALID",    "SLURM_NODEID", "SLURM_STEP",    "SLURM_TASK_PID",
    "SLURM_GTIDS",  "OMPI_COMM_WORLD_", "OMPI_MCA_ess", "OMPI_MCA_orte", "PMIX_"};

template <size_t N>
bool starts_with_any(std::string_view name, const std::array<std::string_view, N>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

OuterLauncher find_outer_launcher(const Environment& environment) {
  Environment its_own;
  for (const auto& [name, value] : environment) {
    if (starts_with_any(name, kPrefixes)) its_own.emplace(name, value);
  }
  const Identity task = identify(its_own);
  OuterLauncher outer;
  if (task.launcher == Launcher::kAlone) return outer;
  outer.name = to_string(task.launcher);
  if (task.local_world_size > 1) {
    throw UsageError(fmt::format(
        "{0} started {1} tasks on this node, and each would start all ranks of the node; hint: one task per "
        "node ({2}), or start the program by {0} without lockstep run",
        outer.name, task.local_world_size,
        task.launcher == Launcher::kSrun ? "srun --ntasks-per-node=1" : "mpirun --map-by ppr:1:node"));
  }
  // One task per node, so that tasks count nodes.
  outer.nodes = task.world_size;
  outer.node_rank = task.rank;
  outer.master_addr = task.master_addr;
  if (task.master_port != 0) outer.master_port = task.master_port;
  outer.job_id = task.job_id;
  for (const auto& [name, value] : its_own) {
    if (starts_with_any(name, kTaskPrefixes)) outer.task_variables.push_back({name, value, outer.name});
  }
  return outer;
}

}  // namespace lockstep::launch
