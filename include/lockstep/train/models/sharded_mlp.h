#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_module_holder.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

namespace torch::nn {
class SequentialImpl;
}

namespace lockstep {

/// Rank r's part of FullMLP(dim, depth): depth / world_size layers, the first ranks having the remainder. It
/// starts from the weights that these layers have in the whole model, and names them alike.
class ShardedMLPImpl : public torch::nn::Module {
 public:
  /// The seed is as FullMLP's. Throws UsageError unless dim is at least 1, the rank is one of the world, and
  /// there is a layer for each rank.
  ShardedMLPImpl(int64_t dim, int64_t depth, int rank, int world_size);
  ShardedMLPImpl(int64_t dim, int64_t depth, int rank, int world_size, uint64_t seed);

  /// [..., dim] -> [..., dim]; with a target, on the last rank, the mean squared error to it instead.
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& target = {});

  bool is_first() const { return begin_ == 0; }
  bool is_last() const { return end_ == depth_; }
  int64_t begin() const { return begin_; }  ///< Its first layer in the whole model.
  int64_t end() const { return end_; }      ///< The first layer of the next rank.

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(torch::Tensor())})

 private:
  int64_t dim_;
  int64_t depth_;
  int64_t begin_ = 0, end_ = 0;
  std::shared_ptr<torch::nn::SequentialImpl> layers_;
};

TORCH_MODULE(ShardedMLP);

}  // namespace lockstep
