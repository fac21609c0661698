#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comms/communicator.h"

namespace lockstep::parallel {

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
                          const BatchStatistics& statistics, double eps, const Communicator& comm);

}  // namespace lockstep::parallel
