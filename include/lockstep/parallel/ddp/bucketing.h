#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comms/data_parallel_comms.h"
#include "lockstep/parallel/ddp/any_model.h"

namespace lockstep {

/// Gradients that are sent together.
struct GradientBucket {
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;
  int64_t bytes = 0;

  std::vector<at::Tensor> gradients() const;
};

/// DistributedDataParallel's reduction without its wrapper: hooks on a model that is called as ever. While
/// this lives, backward() leaves the mean of all ranks' gradients in `.grad`.
///
/// What the wrapper does more: it broadcasts buffers before each forward, notices unequal batches and skipped
/// backwards, and takes
/// part on a rank none of whose parameters got a gradient, where hooks alone would let the others wait. And
/// it notices that `to(dtype)` or a load took the hooks away: make these anew then.
class BucketedDDPHooks {
 public:
  BucketedDDPHooks(const AnyModel& model, DataParallelComms& comms, double bucket_size_mb = 25.0);
  BucketedDDPHooks(const AnyModel& model, DataParallelComms& comms, const DdpOptions& options);

  /// In the order of sending.
  std::vector<GradientBucket> buckets() const;
  DdpLoggingData logging_data() const;

 private:
  std::shared_ptr<ddp::Reducer> reducer_;
};

/// What one size of buckets came to; times are medians.
struct BucketingResult {
  double bucket_cap_mib = 0;  ///< 0: every gradient by itself.
  int64_t messages = 0;       ///< All-reduces in a step.
  int64_t bytes = 0;          ///< Of gradients in a step.
  double backward_ms = 0;     ///< Until all is reduced.
  double communication_ms = 0;
  double exposed_ms = 0;
  DdpLoggingData last;  ///< Of the last step, bucket by bucket.
};

struct BucketingOptions {
  std::vector<double> caps_mib = {0, 1, 4, 25};
  int rounds = 7;  ///< In each of which every size has its turn.
  int64_t batch = 32;
};

/// Times backward() of the model with buckets of several sizes, by turns. Weights stay as they are. All ranks
/// call it. The input is random, as wide as the model's first weight.
std::vector<BucketingResult> compare_bucketed_vs_unbucketed(const AnyModel& model, DataParallelComms& comms,
                                                            const BucketingOptions& options = {});

/// As a table.
std::string to_text(const std::vector<BucketingResult>& results);

}  // namespace lockstep
