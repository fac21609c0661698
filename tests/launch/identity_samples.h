#pragma once

#include <string>

#include "lockstep/launch/identity.h"

// Environments as launchers make them, for the tests of Identity.
namespace lockstep::samples {

// What `lockstep run` gives rank 3 of 4, the second of node 1.
inline Environment lockstep_run() {
  return {{"LOCKSTEP_JOB_ID", "train-7"},
          {"RANK", "3"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"NODE_RANK", "1"},
          {"GROUP_RANK", "1"},
          {"GROUP_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "tux1"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RESTART_COUNT", "1"},
          {"TORCHELASTIC_MAX_RESTARTS", "3"},
          {"TORCHELASTIC_RUN_ID", "train-7"}};
}

// The same place under torchrun 1.13.
inline Environment torchrun() {
  Environment environment = lockstep_run();
  environment.erase("LOCKSTEP_JOB_ID");
  environment.erase("NODE_RANK");
  environment.merge(
      Environment{{"ROLE_RANK", "3"},
                  {"ROLE_NAME", "default"},
                  {"ROLE_WORLD_SIZE", "4"},
                  {"TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_x/none_y/attempt_1/1/error.json"},
                  {"OMP_NUM_THREADS", "1"}});
  environment["TORCHELASTIC_RUN_ID"] = "none";
  return environment;
}

// Taken from rank 1 of `mpirun -n 3 env`, Open MPI 4.1.4.
inline Environment mpirun() {
  return {{"OMPI_APP_CTX_NUM_PROCS", "3"},
          {"OMPI_COMMAND", "env"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
          {"OMPI_COMM_WORLD_NODE_RANK", "1"},
          {"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "3"},
          {"OMPI_FIRST_RANKS", "0"},
          {"OMPI_MCA_ess", "^singleton"},
          {"OMPI_MCA_ess_base_jobid", "1138688001"},
          {"OMPI_MCA_ess_base_vpid", "1"},
          {"OMPI_MCA_orte_ess_node_rank", "1"},
          {"OMPI_MCA_orte_ess_num_procs", "3"},
          {"OMPI_MCA_orte_num_nodes", "1"},
          {"OMPI_NUM_APP_CTX", "1"},
          {"OMPI_UNIVERSE_SIZE", "2"},
          {"PMIX_ID", "1138688001.1"},
          {"PMIX_NAMESPACE", "1138688001"},
          {"PMIX_RANK", "1"},
          {"PMIX_VERSION", "4.2.2rc2"}};
}

// Task 6 of `srun -N4 -n7` in job 4242, as SLURM 22.05 documents the variables of a task.
inline Environment srun() {
  return {{"SLURM_JOB_ID", "4242"},
          {"SLURM_JOBID", "4242"},
          {"SLURM_JOB_NODELIST", "tux[1-3,07]"},
          {"SLURM_NNODES", "4"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_NPROCS", "7"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEPID", "0"},
          {"SLURM_STEP_NODELIST", "tux[1-3,07]"},
          {"SLURM_STEP_NUM_NODES", "4"},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"},
          {"SLURM_PROCID", "6"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "3"},
          {"SLURMD_NODENAME", "tux07"}};
}

// Taken from task 2 of `srun -N2 -n3 env`, SLURM 22.05.8.
inline Environment srun_captured() {
  return {{"SLURMD_NODENAME", "n2"},
          {"SLURM_CLUSTER_NAME", "t"},
          {"SLURM_CPUS_ON_NODE", "1"},
          {"SLURM_GTIDS", "2"},
          {"SLURM_JOBID", "1"},
          {"SLURM_JOB_CPUS_PER_NODE", "2,1"},
          {"SLURM_JOB_ID", "1"},
          {"SLURM_JOB_NODELIST", "n[1-2]"},
          {"SLURM_JOB_NUM_NODES", "2"},
          {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NNODES", "2"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NODELIST", "n[1-2]"},
          {"SLURM_NPROCS", "3"},
          {"SLURM_NTASKS", "3"},
          {"SLURM_PRIO_PROCESS", "0"},
          {"SLURM_PROCID", "2"},
          {"SLURM_SRUN_COMM_HOST", "127.0.0.1"},
          {"SLURM_STEPID", "0"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "n[1-2]"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NUM_TASKS", "3"},
          {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
          {"SLURM_TASKS_PER_NODE", "2,1"},
          {"SLURM_TASK_PID", "93"}};
}

// Taken from a batch script of two nodes, outside of srun, SLURM 22.05.8.
inline Environment batch_script() {
  return {{"SLURMD_NODENAME", "n1"},
          {"SLURM_GTIDS", "0"},
          {"SLURM_JOBID", "2"},
          {"SLURM_JOB_CPUS_PER_NODE", "2(x2)"},
          {"SLURM_JOB_ID", "2"},
          {"SLURM_JOB_NODELIST", "n[1-2]"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NNODES", "2"},
          {"SLURM_NODEID", "0"},
          {"SLURM_NODE_ALIASES", "(null)"},
          {"SLURM_NPROCS", "4"},
          {"SLURM_NTASKS", "4"},
          {"SLURM_NTASKS_PER_NODE", "2"},
          {"SLURM_PROCID", "0"},
          {"SLURM_TASKS_PER_NODE", "2(x2)"},
          {"SLURM_TASK_PID", "134"}};
}

inline Environment by_hand() {
  return {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
}

inline Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

inline Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

}  // namespace lockstep::samples
