#include "lockstep/train/models/full_mlp.h"

#include <ATen/ops/mse_loss.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/error.h"
#include "train/models/mlp_layers.h"

namespace lockstep {

FullMLPImpl::FullMLPImpl(int64_t dim, int64_t depth) : FullMLPImpl(dim, depth, train::default_seed()) {}

FullMLPImpl::FullMLPImpl(int64_t dim, int64_t depth, uint64_t seed) : dim_(dim), depth_(depth) {
  if (dim < 1 || depth < 1) {
    throw UsageError(fmt::format("FullMLP: dim {} and depth {}; hint: both must be at least 1", dim, depth));
  }
  layers_ = register_module("layers", train::make_mlp_layers(dim, 0, depth, depth, seed).ptr());
}

torch::Tensor FullMLPImpl::forward(const torch::Tensor& input, const torch::Tensor& target) {
  if (input.dim() < 1 || input.size(-1) != dim_) {
    throw UsageError(fmt::format("FullMLP: the input has shape [{}], expected [..., {}]",
                                 fmt::join(input.sizes(), ", "), dim_));
  }
  const torch::Tensor output = layers_->forward(input);
  if (!target.defined()) return output;
  if (target.sizes() != output.sizes()) {
    throw UsageError(fmt::format("FullMLP: the target has shape [{}], the output [{}]",
                                 fmt::join(target.sizes(), ", "), fmt::join(output.sizes(), ", ")));
  }
  return at::mse_loss(output, target);
}

}  // namespace lockstep
