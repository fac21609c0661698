#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comms/data_parallel_comms.h"
#include "lockstep/parallel/ddp/any_model.h"

// What gradient hooks do, shown on the machinery that DistributedDataParallel uses.
namespace lockstep {

/// Writes down when backward() puts a gradient into which parameter, while it lives.
class HookTracker {
 public:
  struct Call {
    std::string name;  ///< Of the parameter.
    double at_us = 0;  ///< Since begin().
  };

  explicit HookTracker(const AnyModel& model);
  ~HookTracker();
  HookTracker(const HookTracker&) = delete;
  HookTracker& operator=(const HookTracker&) = delete;

  /// Forgets what was, and starts the clock.
  void begin();
  const std::vector<Call>& calls() const { return calls_; }

 private:
  struct Hooks;
  std::unique_ptr<Hooks> hooks_;
  std::chrono::steady_clock::time_point begin_;
  std::vector<Call> calls_;
};

/// A link between ranks that is not there: an all-reduce of n bytes takes what estimate_communication_time()
/// says.
struct SimulatedLink {
  double gbit_per_second = 1;
  double latency_us = 50;
  int world_size = 2;
};

/// What the same step would take on such a link: the buckets that were measured, each sent when it was ready
/// and the one before is done, on a virtual clock.
struct PredictedStep {
  std::vector<BucketTimes> buckets;
  double communication_us = 0;
  double exposed_us = 0;         ///< After backward, with hooks.
  double exposed_manual_us = 0;  ///< If all were sent after backward.
};
PredictedStep predict_step(const DdpLoggingData& measured, const SimulatedLink& link);

/// The order in which hooks are called: from the last layer to the first. A table; one backward of a random
/// batch. All ranks call it.
std::string demonstrate_hook_order(const AnyModel& model, DataParallelComms& comms);

/// Bucket by bucket: when it was ready, sent and reduced, here and on a simulated link. All ranks call it.
std::string demonstrate_overlap(const AnyModel& model, DataParallelComms& comms,
                                const SimulatedLink& link = {}, double bucket_size_mb = 0.25);

/// Backward with hooks against backward followed by an all-reduce of each gradient; medians of alternated
/// rounds.
struct HookTiming {
  double hooks_ms = 0;
  double manual_ms = 0;
  bool overlaps = false;  ///< Whether buckets were reduced while backward went on.
};
HookTiming compare_hook_vs_manual_timing(const AnyModel& model, DataParallelComms& comms, int rounds = 7);

}  // namespace lockstep
