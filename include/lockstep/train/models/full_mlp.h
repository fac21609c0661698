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

/// The course's baseline model: a `Sequential` of `depth` layers `Linear(dim, dim)`, with a ReLU between
/// neighbours and none after the last.
///
/// Layer k's weights are a function of (seed, k, dim) alone, so a model that is cut into stages, or has more
/// layers, starts from the same weights. He's uniform initialisation keeps the size of activations and
/// gradients the same through all layers; biases start at zero. He et al., "Delving Deep into Rectifiers",
/// 2015.
///
/// Parameters are named by layer: `layers.0.weight`, `layers.0.bias`, ..., `layers.15.bias`.
class FullMLPImpl : public torch::nn::Module {
 public:
  /// Seeded with the seed of torch's default CPU generator (`torch::manual_seed`), which is neither read
  /// further nor moved. Throws UsageError unless dim and depth are at least 1.
  explicit FullMLPImpl(int64_t dim, int64_t depth = 16);
  FullMLPImpl(int64_t dim, int64_t depth, uint64_t seed);

  /// [..., dim] -> [..., dim]; with a target, the mean squared error to it instead. Throws UsageError for any
  /// other shape.
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& target = {});

  int64_t dim() const { return dim_; }
  int64_t depth() const { return depth_; }
  /// The layers and the ReLUs between them, for cutting.
  const std::shared_ptr<torch::nn::SequentialImpl>& layers() const { return layers_; }

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(torch::Tensor())})

 private:
  int64_t dim_;
  int64_t depth_;
  std::shared_ptr<torch::nn::SequentialImpl> layers_;
};

TORCH_MODULE(FullMLP);

}  // namespace lockstep
