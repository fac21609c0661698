#include "lockstep/parallel/ddp/sync_batch_norm.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/batchnorm.h>

#include "lockstep/error.h"
#include "parallel/ddp/sync_normalize.h"

namespace lockstep {

SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormOptions& options_, Communicator comm)
    : NormImplBase(options_),
      group_(std::make_shared<parallel::SyncGroup>(parallel::SyncGroup{std::move(comm)})) {}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  if (input.dim() < 2 || input.size(1) != options.num_features()) {
    throw UsageError(fmt::format("SyncBatchNorm on rank {}: the input has shape [{}], expected [N, {}, ...]",
                                 group_->comm.rank(), fmt::join(input.sizes(), ", "),
                                 options.num_features()));
  }
  const auto type = input.scalar_type();
  if (!input.device().is_cpu() || (type != at::kFloat && type != at::kDouble)) {
    throw UsageError(
        fmt::format("SyncBatchNorm on rank {}: the input is {} on {}, expected Float or Double on cpu",
                    group_->comm.rank(), at::toString(type), input.device().str()));
  }
}

double SyncBatchNormImpl::count_batch() {
  num_batches_tracked += 1;
  const auto momentum = options.momentum();
  return momentum.has_value() ? *momentum : 1.0 / num_batches_tracked.item<double>();
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  _check_input_dim(input);
  if (!is_training()) {
    return torch::nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias,
                                                     /*training=*/!options.track_running_stats(),
                                                     /*momentum=*/0.0, options.eps());
  }
  parallel::BatchStatistics statistics;
  {
    const torch::NoGradGuard no_grad;
    statistics = parallel::gather_statistics(input.detach(), group_->begin(/*is_backward=*/false));
    if (!(statistics.count >= 2)) {
      throw UsageError(
          fmt::format("SyncBatchNorm on rank {}: all {} ranks have {} values a channel, expected more than 1",
                      group_->comm.rank(), group_->comm.world_size(), statistics.count));
    }
    if (options.track_running_stats()) {
      const double share = count_batch();
      const double unbiased = statistics.count / (statistics.count - 1);
      running_mean.mul_(1 - share).add_(statistics.mean, share);
      running_var.mul_(1 - share).add_(statistics.variance, share * unbiased);
    }
  }
  const auto like_input = input.options().requires_grad(false);
  return parallel::sync_normalize(input,
                                  weight.defined() ? weight : at::ones({options.num_features()}, like_input),
                                  bias.defined() ? bias : at::zeros({options.num_features()}, like_input),
                                  statistics, options.eps(), group_);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum=";
  if (options.momentum().has_value()) {
    stream << *options.momentum();
  } else {
    stream << "none";
  }
  stream << fmt::format(", affine={}, track_running_stats={})", options.affine(),
                        options.track_running_stats());
}

}  // namespace lockstep
