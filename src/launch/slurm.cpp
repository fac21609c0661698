#include "launch/slurm.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "launch/hostlist.h"
#include "launch/printable.h"
#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

// Steps above this number are SLURM's own: batch scripts, salloc's shell, external processes.
constexpr std::uint32_t kMaxNormalStep = 0xfffffff0;

std::uint32_t parse_id(std::string_view name, std::string_view text) {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError(fmt::format("{}: '{}' is not a whole number between 0 and {}; hint: SLURM sets it", name,
                                 printable(text), std::numeric_limits<std::uint32_t>::max()));
  }
  return id;
}

// SLURM_STEP_TASKS_PER_NODE as a list with one entry for each node, whose sum is the world.
int tasks_on_node(const Variables& variables, const Place& place) {
  const std::vector<int> tasks =
      expand_tasks_per_node(variables.text(kSrunNames.local_world_size), kSrunNames.local_world_size);
  if (tasks.size() != static_cast<std::size_t>(*place.nodes)) {
    variables.refuse(fmt::format("{} tells of {} node(s), but {}",
                                 variables.shown(kSrunNames.local_world_size), tasks.size(),
                                 variables.shown(kSrunNames.nodes)));
  }
  const std::int64_t sum = std::accumulate(tasks.begin(), tasks.end(), std::int64_t{0});
  if (sum != place.world_size) {
    variables.refuse(fmt::format("{} tells of {} task(s), but {}",
                                 variables.shown(kSrunNames.local_world_size), sum,
                                 variables.shown(kSrunNames.world_size)));
  }
  return tasks[static_cast<std::size_t>(*place.node_rank)];
}

std::string first_host(const Variables& variables, const Place& place) {
  constexpr std::string_view kName = "SLURM_STEP_NODELIST";
  const std::vector<std::string> hosts = expand_hostlist(variables.text(kName), kName);
  if (hosts.size() != static_cast<std::size_t>(*place.nodes)) {
    variables.refuse(fmt::format("{} names {} host(s), but {}", variables.shown(kName), hosts.size(),
                                 variables.shown(kSrunNames.nodes)));
  }
  return hosts.front();
}

}  // namespace

Variables slurm_variables(const Environment& environment) {
  const auto has = [&](std::string_view name) { return environment.contains(std::string(name)); };
  return {environment,
          has("SLURM_STEP_ID")         ? "SLURM_STEP_ID"
          : has(kSrunNames.world_size) ? kSrunNames.world_size
                                       : kSrunNames.rank,
          "srun sets SLURM_STEP_* and SLURM_PROCID for each task; start the program through srun itself, and "
          "leave "
          "RANK, WORLD_SIZE and their like unset"};
}

std::optional<SlurmStep> slurm_step(const Environment& environment) {
  const Variables variables = slurm_variables(environment);
  if (!variables.has("SLURM_STEP_ID") && !variables.has(kSrunNames.world_size)) return std::nullopt;
  const std::string& step_id = variables.text("SLURM_STEP_ID");
  if (parse_id("SLURM_STEP_ID", step_id) > kMaxNormalStep) return std::nullopt;
  const std::string& job_id = variables.text("SLURM_JOB_ID");

  SlurmStep step;
  Place& place = step.place;
  place.world_size = variables.number(kSrunNames.world_size, 1, kMaxWorldSize);
  place.rank = variables.number(kSrunNames.rank, 0, place.world_size - 1);
  place.nodes = variables.number(kSrunNames.nodes, 1, place.world_size);
  place.node_rank = variables.number(kSrunNames.node_rank, 0, *place.nodes - 1);
  place.local_world_size = tasks_on_node(variables, place);
  place.local_rank = variables.number(kSrunNames.local_rank, 0, place.local_world_size - 1);
  step.first_host = first_host(variables, place);
  step.master_port = slurm_master_port(job_id, step_id);
  step.id = fmt::format("{}.{}", job_id, step_id);
  step.restart_count = variables.number_or("SLURM_RESTART_COUNT", 0, std::numeric_limits<int>::max(), 0);
  return step;
}

int slurm_master_port(std::string_view job_id, std::string_view step_id) {
  const std::uint64_t job = parse_id("SLURM_JOB_ID", job_id);
  const std::uint64_t step = parse_id("SLURM_STEP_ID", step_id);
  return static_cast<int>(20000 + (31 * job + step) % 10000);
}

}  // namespace lockstep::launch
