#pragma once

#include <unistd.h>

#include <string>

#include "launch/environment.h"

namespace lockstep::test {

/// What srun tells task `rank` of so many on one node.
inline launch::Environment slurm_task(int rank, int tasks) {
  const std::string number = std::to_string(rank);
  const std::string count = std::to_string(tasks);
  return {{"SLURM_JOB_ID", std::to_string(getpid())},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "tux1"},
          {"SLURM_STEP_NUM_NODES", "1"},
          {"SLURM_STEP_NUM_TASKS", count},
          {"SLURM_STEP_TASKS_PER_NODE", count},
          {"SLURM_PROCID", number},
          {"SLURM_LOCALID", number},
          {"SLURM_NODEID", "0"}};
}

}  // namespace lockstep::test
