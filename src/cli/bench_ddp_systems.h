#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/asked_job.h"
#include "cli/bench_ddp_request.h"
#include "cli/bench_settings.h"
#include "cli/temporary_folder.h"

namespace lockstep::cli {

/// What one system did in one round; milliseconds of a step.
struct DdpRound {
  double step_ms = 0;      ///< Of the slowest rank.
  double forward_ms = 0;   ///< This and what follows: the mean over ranks, where the system tells.
  double backward_ms = 0;  ///< Without exposed communication.
  double exposed_ms = 0;
  double optimizer_ms = 0;
  double loss = 0;                         ///< Of the last step, the mean over ranks.
  std::vector<int64_t> bucket_bytes = {};  ///< Lockstep's.
};

/// What parts of a step take at least, on all ranks at once.
struct DdpFloor {
  double forward_ms = 0;    ///< The matrix products alone.
  double backward_ms = 0;   ///< The same.
  double optimizer_ms = 0;  ///< The loads and stores alone.
};

/// Lockstep and its peers, each in processes of its own that live as long as this, started by our launcher in
/// the same environment. One works at a time, the others sleep.
class DdpSystems {
 public:
  /// `peers` as parse_ddp_peers() gives them; `commands` is the folder of `lockstep`.
  DdpSystems(const DdpBench& bench, const std::vector<std::string>& peers,
             const std::filesystem::path& commands);

  /// lockstep first.
  const std::vector<std::string>& names() const { return names_; }
  /// Throws Error if ranks of two systems compute under different settings.
  BenchSettings settings();

  /// All systems start anew from the model's first weights.
  void build(size_t model);
  /// Trains and tells the loss before each step, the mean over ranks. A single process does this with the
  /// samples of all ranks, and everything else with its own. Throws Error if ranks end with different
  /// weights.
  std::vector<double> train(const std::string& system, int64_t steps);
  /// Trains; the first `warm_up` steps do not count.
  DdpRound time(const std::string& system, int64_t warm_up, int64_t steps);
  DdpFloor floor(int64_t steps);

 private:
  void start(const std::string& job, const std::vector<std::string>& program);
  AskedJob& job_of(const std::string& system);

  const DdpBench bench_;
  const std::filesystem::path commands_;
  std::vector<std::string> names_ = {"lockstep"};
  TemporaryFolder folder_;
  AskedJobs jobs_;  ///< By name: lockstep, libtorch, pytorch.
};

}  // namespace lockstep::cli
