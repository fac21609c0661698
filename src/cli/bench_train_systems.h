#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/bench_settings.h"
#include "cli/bench_train_request.h"
#include "cli/temporary_folder.h"

namespace lockstep::cli {

/// What all ranks of a system did in one round.
struct TrainRound {
  double round_ms = 0;   ///< Of the slowest rank.
  double saving_ms = 0;  ///< The part of it in which checkpoints were saved.
};

/// Names of the systems.
inline constexpr const char* kTrainLockstep = "lockstep";
inline constexpr const char* kTrainSaving = "lockstep-saving";  ///< The same ranks, and they save.
inline constexpr const char* kTrainPytorch = "pytorch-ddp";

/// Lockstep's ranks and a peer's, which live as long as this, started by our launcher in the same
/// environment. One works at a time, the others sleep.
class TrainSystems {
 public:
  TrainSystems(const TrainBench& bench, const std::filesystem::path& commands);

  BenchSettings settings() { return compare_settings("bench train", jobs_); }
  const train::Run& run() const { return run_; }
  const std::string& engine() const { return engine_; }  ///< Of Lockstep.
  /// Whether checkpoints go to a file system that is memory.
  bool saves_to_memory() const;

  /// Trains and tells the loss before each step, the mean over ranks. Throws Error if ranks end with
  /// different weights.
  std::vector<double> train(const std::string& system, int64_t steps);
  /// Trains; the first `warm_up` steps do not count.
  TrainRound time(const std::string& system, int64_t warm_up, int64_t steps);

 private:
  void start(const std::string& job, const std::vector<std::string>& program);
  AskedJob& job_of(const std::string& system);

  const TrainBench bench_;
  const std::filesystem::path commands_;
  TemporaryFolder folder_;
  const train::Run run_;
  AskedJobs jobs_;  ///< lockstep, pytorch.
  std::string engine_;
};

}  // namespace lockstep::cli
