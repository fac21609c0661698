#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep {

/// Samples of each of `m` micro-batches: as even as possible, longer ones first. Throws UsageError unless
/// there is at least one for each.
std::vector<int64_t> microbatch_sizes(int64_t samples, int m);

/// Cuts a batch along its first dimension into `m` views, of microbatch_sizes().
std::vector<at::Tensor> split_into_microbatches(const at::Tensor& batch, int m);

}  // namespace lockstep
