#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "lockstep/comms/communicator.h"

namespace lockstep::parallel {

/// The ranks that normalise together.
struct SyncGroup {
  Communicator comm;
  /// Called before each collective call, if set: join() announces it to ranks that have no more inputs.
  std::function<void(bool is_backward)> before_call = {};

  Communicator& begin(bool is_backward) {
    if (before_call) before_call(is_backward);
    return comm;
  }
};

/// Of each channel over the batches of all ranks; the same bits on every rank.
struct BatchStatistics {
  at::Tensor mean;      ///< [C], float64.
  at::Tensor variance;  ///< [C], float64; divided by the count.
  double count = 0;     ///< Values a channel.
};

/// Of all ranks' inputs [N, C, ...]; a collective call.
BatchStatistics gather_statistics(const at::Tensor& input, Communicator& comm);

/// weight (input - mean) / sqrt(variance + eps) + bias, where the statistics are a function of all ranks'
/// inputs: backward is a collective call, if the input needs a gradient.
at::Tensor sync_normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                          const BatchStatistics& statistics, double eps,
                          const std::shared_ptr<SyncGroup>& group);

}  // namespace lockstep::parallel
