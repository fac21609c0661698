#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/bench_pipeline_request.h"
#include "cli/bench_settings.h"
#include "cli/temporary_folder.h"
#include "lockstep/plan/pipeline_simulate.h"

namespace lockstep::cli {

/// What all ranks did in the steps of one round; milliseconds of a step.
struct PipelineRound {
  double step_ms = 0;  ///< From when the first rank began to when the last was done.
  double loss = 0;     ///< Of the last step.
  // By rank, and Lockstep's alone:
  std::vector<double> busy_ms = {};      ///< In forwards and backwards: what waits for a message is idle.
  std::vector<double> forward_ms = {};   ///< Of a micro-batch, all chunks together.
  std::vector<double> backward_ms = {};  ///< The same.
  std::vector<double> peak_activations = {};
  std::vector<double> weight_bytes = {};
  std::vector<double> peak_bytes = {};  ///< Of tensors beside weights and batch; 0 where nobody counts.
};

/// When a step's actions ran, by rank and as the plan's, in milliseconds since the first rank began.
using PipelineSpans = std::vector<std::vector<plan::ActionSpan>>;

/// The name of the peer's row.
inline constexpr const char* kPytorchPipeline = "pytorch-1f1b";

/// Lockstep's ranks and a peer's, which live as long as this, started by our launcher in the same
/// environment. One works at a time, the others sleep.
class PipelineSystems {
 public:
  PipelineSystems(const PipelineBench& bench, bool with_pytorch, const std::filesystem::path& commands);

  BenchSettings settings() { return compare_settings("bench pipeline", jobs_); }
  /// Systems are numbered: rows of the benchmark first, then the peer.
  size_t count() const { return bench_.rows.size() + (jobs_.contains("pytorch") ? 1 : 0); }
  std::string name(size_t system) const;

  /// Trains and tells the loss before each step.
  std::vector<double> train(size_t system, int64_t steps);
  /// Forward and backward of the same batch; the first `warm_up` steps do not count.
  PipelineRound time(size_t system, int64_t warm_up, int64_t steps);
  /// One step of a row.
  PipelineSpans spans(size_t row);

 private:
  void start(const std::string& job, const std::vector<std::string>& program);
  std::vector<nlohmann::json> ask(size_t system, nlohmann::json question);

  const PipelineBench bench_;
  const std::filesystem::path commands_;
  TemporaryFolder folder_;
  AskedJobs jobs_;  ///< lockstep, pytorch.
};

}  // namespace lockstep::cli
