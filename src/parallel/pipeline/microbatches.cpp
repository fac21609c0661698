#include "lockstep/parallel/pipeline/microbatches.h"

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep {

std::vector<int64_t> microbatch_sizes(int64_t samples, int m) {
  if (m < 1 || samples < m) {
    throw UsageError(fmt::format("{} samples cannot be cut into {} micro-batches; hint: 1 to {} are possible",
                                 samples, m, samples));
  }
  std::vector<int64_t> sizes(static_cast<size_t>(m), samples / m);
  for (int64_t i = 0; i < samples % m; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

std::vector<at::Tensor> split_into_microbatches(const at::Tensor& batch, int m) {
  if (!batch.defined() || batch.dim() < 1) {
    throw UsageError("split_into_microbatches: the batch has no first dimension to cut along");
  }
  return batch.split_with_sizes(microbatch_sizes(batch.size(0), m));
}

}  // namespace lockstep
