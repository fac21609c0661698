#include "lockstep/train/models/sharded_mlp.h"

#include <ATen/ops/mse_loss.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/partition.h"
#include "train/models/mlp_layers.h"

namespace lockstep {

ShardedMLPImpl::ShardedMLPImpl(int64_t dim, int64_t depth, int rank, int world_size)
    : ShardedMLPImpl(dim, depth, rank, world_size, train::default_seed()) {}

ShardedMLPImpl::ShardedMLPImpl(int64_t dim, int64_t depth, int rank, int world_size, uint64_t seed)
    : dim_(dim), depth_(depth) {
  if (dim < 1 || rank < 0 || rank >= world_size) {
    throw UsageError(
        fmt::format("ShardedMLP: dim {}, rank {} of {}; hint: dim must be at least 1, ranks count "
                    "from 0",
                    dim, rank, world_size));
  }
  const Cuts cuts = cut_by_count(depth, world_size);
  begin_ = cuts[static_cast<size_t>(rank)];
  end_ = cuts[static_cast<size_t>(rank) + 1];
  layers_ = register_module("layers", train::make_mlp_layers(dim, begin_, end_, depth, seed).ptr());
}

torch::Tensor ShardedMLPImpl::forward(const torch::Tensor& input, const torch::Tensor& target) {
  if (input.dim() < 1 || input.size(-1) != dim_) {
    throw UsageError(fmt::format("ShardedMLP: the input has shape [{}], expected [..., {}]",
                                 fmt::join(input.sizes(), ", "), dim_));
  }
  const torch::Tensor output = layers_->forward(input);
  if (!target.defined()) return output;
  if (!is_last()) throw UsageError("ShardedMLP: a target is for the last rank; hint: ask is_last()");
  return at::mse_loss(output, target);
}

}  // namespace lockstep
