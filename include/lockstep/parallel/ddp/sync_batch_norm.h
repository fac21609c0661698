#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <ostream>

#include "lockstep/comms/communicator.h"

namespace lockstep {

namespace ddp {
class Reducer;
}
namespace parallel {
struct SyncGroup;
}

/// num_features, eps, momentum, affine and track_running_stats, as of torch::nn::BatchNorm2d.
using SyncBatchNormOptions = torch::nn::BatchNormOptions;

/// Batch normalisation of [N, C, ...] by the mean and variance of all ranks' batches, as if they were one.
/// Parameters, buffers, their names and eval mode are those of torch::nn::BatchNorm1d, 2d and 3d, so
/// checkpoints can be exchanged.
///
/// Forward in training gathers 2 C + 1 doubles of each rank (mean, sum of squared deviations, count),
/// combined in rank order: all ranks normalise by the same bits. Backward sums 2 C doubles over the ranks if
/// the input needs a gradient. Gradients of weight and bias are of this rank's batch alone; data parallel
/// training averages them. Ranks may have batches of any size, also empty ones, if all ranks together have at
/// least two values a channel. In eval mode nothing is sent; without running statistics the own batch counts.
///
/// Every rank must run forward and backward as often as the others and in the same order; a rank whose batch
/// is empty too; a rank that is done in DistributedDataParallel::join() counts as one with an empty batch.
/// Give it a communicator of its own (`comm.split(0)`) if others send while backward runs.
///
/// Throws UsageError for an input of another shape, or not of float32 or float64 on the CPU; if there are too
/// few values; and in backward with create_graph: it cannot be differentiated twice.
class SyncBatchNormImpl : public torch::nn::NormImplBase<0, SyncBatchNormImpl, SyncBatchNormOptions> {
 public:
  SyncBatchNormImpl(const SyncBatchNormOptions& options, Communicator comm);

  torch::Tensor forward(const torch::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  /// What a new batch weighs in the running statistics; counts the batch.
  double count_batch();

  friend class ddp::Reducer;  // for join()
  std::shared_ptr<parallel::SyncGroup> group_;
};

TORCH_MODULE(SyncBatchNorm);

}  // namespace lockstep
