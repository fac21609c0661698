#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comms/data_parallel_comms.h"
#include "lockstep/parallel/ddp/any_model.h"
#include "lockstep/plan/cost.h"  // estimate_communication_time

namespace lockstep {

/// Where the time of a step went.
struct StepTiming {
  double forward_ms = 0;
  double backward_ms = 0;       ///< Without communication that was not hidden.
  double communication_ms = 0;  ///< That was not hidden; waiting for a slower rank is in it.
  double optimizer_ms = 0;
  int64_t batch = 0;  ///< Of this rank.
  double total_ms() const { return forward_ms + backward_ms + communication_ms + optimizer_ms; }
};

/// What communication costs, and from which batch on training on several ranks is faster than on one.
struct CommunicationOverhead {
  StepTiming median;
  int world_size = 1;
  int steps = 0;
  double fraction = 0;  ///< Of the step that is communication.
  /// Samples a second of all ranks, against one rank that computes at the pace measured here. An estimate,
  /// and a kind one: ranks that share a machine's memory slow each other down, and one alone would be faster.
  /// analyze_scaling_efficiency() measures that instead.
  double estimated_speedup = 1;
  /// Per rank; below it, one rank alone would be faster on the same samples. 0: always worth it; in a world
  /// of one there is none either.
  double break_even_batch = 0;
  bool is_worth_it() const { return estimated_speedup > 1; }
};
std::string to_text(const CommunicationOverhead& overhead);

/// Times training steps, part by part.
///
///   DDPPerformanceAnalyzer analyzer(comms);
///   for (...) analyzer.time_step(model, input, target, optimizer);
///   std::cout << to_text(analyzer.analyze_communication_overhead());
class DDPPerformanceAnalyzer {
 public:
  /// Only the CPU is known.
  explicit DDPPerformanceAnalyzer(DataParallelComms& comms, const std::string& device = "cpu");

  /// One step of the model, whose gradients are averaged by hooks of the analyzer's own (BucketedDDPHooks),
  /// with a mean squared error. The first steps with a model warm it up and are not counted.
  StepTiming time_step(const AnyModel& model, const at::Tensor& input, const at::Tensor& target,
                       torch::optim::Optimizer& optimizer);

  /// Of all steps so far but those that warmed up. Throws UsageError before there is one. The same on all
  /// ranks: what the slowest took.
  CommunicationOverhead analyze_communication_overhead();

 private:
  static constexpr int kWarmUp = 2;
  DataParallelComms& comms_;
  std::shared_ptr<torch::nn::Module> module_;  ///< That the hooks are on.
  std::shared_ptr<void> hooks_;                ///< BucketedDDPHooks.
  int warm_ups_ = 0;
  std::vector<StepTiming> steps_;
};

/// One world size, as measured: the same batch per rank everywhere (weak scaling).
struct ScalingRow {
  int world_size = 1;
  double step_ms = 0;
  double samples_per_second = 0;  ///< Of all ranks.
  double efficiency = 1;          ///< Against so many times the throughput of one rank.
};
/// Runs `measure` (which returns the step's ms) on the first 1, 2, 4, ... and on all ranks of the job, one
/// world after the other, while the rest waits. All ranks call it and get the same rows.
std::vector<ScalingRow> analyze_scaling_efficiency(Communicator& comm, int64_t batch_per_rank,
                                                   const std::function<double(DataParallelComms&)>& measure);
std::string to_text(const std::vector<ScalingRow>& rows);

/// What bounds a step: "computation", "communication" or "memory" (the optimizer's passes), with the share of
/// it.
struct Bottleneck {
  std::string name;
  double share = 0;
  std::string hint;
};
Bottleneck find_bottleneck(const StepTiming& timing);

}  // namespace lockstep
