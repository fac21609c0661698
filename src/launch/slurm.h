#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launch/place.h"

namespace lockstep::launch {

/// This process as a task of an srun step.
struct SlurmStep {
  Place place;             ///< of the task; node_rank and nodes are known
  std::string first_host;  ///< of the step's nodes: where task 0 runs
  std::string id;          ///< "job.step", such as "42.0"
  int master_port = 0;     ///< slurm_master_port() of the step
  int restart_count = 0;   ///< how often SLURM has requeued the job
};

/// The step that `environment` tells of, or nothing outside of srun: SLURM_STEP_ID is then not set, or names
/// the step of a batch script or of salloc's own shell, which have no tasks. Throws UsageError, naming
/// variable and value, if variables are missing, malformed or contradict each other.
std::optional<SlurmStep> slurm_step(const Environment& environment);

/// The variables of slurm_step(), for messages about them.
Variables slurm_variables(const Environment& environment);

/// The port on which the ranks of a step meet unless the user names one: 20000 + (31 * job + step) mod 10000.
/// All ranks come to the same port without talking; the steps of one job, and jobs that follow each other
/// with fewer than 31 steps, come to different ones. The range lies below the ports that Linux gives out by
/// itself (from 32768). Throws UsageError unless both are decimal numbers below 2^32.
int slurm_master_port(std::string_view job_id, std::string_view step_id);

}  // namespace lockstep::launch
