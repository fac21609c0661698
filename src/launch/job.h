#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/blas.h"
#include "launch/cores.h"
#include "launch/environment.h"
#include "launch/setting.h"

namespace lockstep::launch {

/// What the user asked `lockstep run` for, as typed; "" where a flag is absent.
struct JobOptions {
  std::string nproc_per_node;
  std::string nnodes;
  std::string node_rank;
  std::string master_addr;
  std::string master_port;
  std::string max_restarts = "0";
  std::string grace = "5";
  std::string log_dir = "logs";
  std::string tee = "3";
  std::string redirects;  ///< torchrun's; checked, and of no effect: logs are always kept.
  std::string ranks_filter;
  std::string local_ranks_filter;
  std::string engine;
  std::string bind = "core";
  std::string job_id;
  std::string role = "default";
  std::vector<std::string> settings;  ///< K=V for the ranks.
  bool standalone = false;
  bool dry_run = false;  ///< Questions that only a real start must have answered get an assumption instead.
  std::vector<std::string> program;
};

/// What the resolution needs to know of the machine.
struct MachineFacts {
  std::vector<Core> cores;
  int usable_cores = 1;
  BlasChoice blas;
};

/// One rank of this node.
struct RankSpec {
  int rank;
  int local_rank;
  std::vector<int> cpus;  ///< Bound to these; empty: not bound.
  bool tee_stdout;        ///< Show live.
  bool tee_stderr;
  std::vector<Setting> settings;  ///< Of its environment, beyond what is inherited.
  std::filesystem::path log_dir;
};

/// Everything `lockstep run` has decided before it starts anything.
struct Job {
  std::vector<std::string> command;  ///< Program by path, then its arguments.
  std::vector<Setting> facts;        ///< Nodes, ranks, master: each with its origin, for --explain.
  std::vector<Setting> removed;      ///< Variables of an outer launcher that the ranks do not inherit.
  std::vector<RankSpec> ranks;
  int node_rank = 0;
  int nodes = 1;
  int max_restarts = 0;
  double grace_s = 5;
  std::filesystem::path log_dir;
  std::vector<int> stopped_codes;  ///< Ranks that end so were asked to stop, and did: no failure.
  bool choose_port = false;  ///< MASTER_PORT is chosen anew for every attempt (one node, no port asked for).
};

/// Turns flags, environment and machine into a job. Throws UsageError by name and value; starts and writes
/// nothing.
Job resolve_job(const JobOptions& options, const Environment& environment, const MachineFacts& machine);

/// The environment that a rank is started with in the given attempt (0 first). `port` is used if the job
/// chooses its own.
Environment rank_environment(const Job& job, const RankSpec& rank, const Environment& inherited, int attempt,
                             int port);

}  // namespace lockstep::launch
