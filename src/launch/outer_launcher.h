#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/environment.h"
#include "launch/setting.h"

namespace lockstep::launch {

/// What srun or mpirun, having started this launcher, says of the job: with one launcher per node its task
/// numbers are node numbers.
struct OuterLauncher {
  std::string name;  ///< For --explain: `srun`, `mpirun`, or "" for none.
  std::optional<int> nodes;
  std::optional<int> node_rank;
  std::string master_addr;
  std::optional<int> master_port;
  std::string job_id;
  std::vector<Setting>
      task_variables;  ///< Its variables about this task, which would contradict the ranks' own.
};

/// Throws UsageError if the outer launcher started several tasks on this node: each would start all ranks.
OuterLauncher find_outer_launcher(const Environment& environment);

}  // namespace lockstep::launch
