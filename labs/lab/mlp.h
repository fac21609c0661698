#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lab/checker.h"
#include "lab/tensor_data.h"
#include "lockstep/train/models/full_mlp.h"

/// For checks that look at how a learner's code moves the weights of a FullMLP. In doubles, so that rounding
/// explains no difference. What is right is computed from flat weights and without autograd: LibTorch refuses
/// backward() in a child of a process that has called it.
namespace lab::mlp {

using torch::Tensor;

/// Inputs and targets are two views of the same 2 hidden numbers: something to learn.
struct Samples {
  Tensor inputs, targets;
  Tensor input(int64_t begin, int64_t count) const { return inputs.narrow(0, begin, count); }
  Tensor target(int64_t begin, int64_t count) const { return targets.narrow(0, begin, count); }
  int64_t count() const { return inputs.size(0); }
};

inline Samples make_samples(const Checker& checker, int64_t count, int64_t dim) {
  auto numbers = at::detail::createCPUGenerator(checker.draw(1));
  const auto hidden = torch::randn({count, 2}, numbers, torch::kDouble);
  return {hidden.matmul(torch::randn({2, dim}, numbers, torch::kDouble)) / 2,
          hidden.matmul(torch::randn({2, dim}, numbers, torch::kDouble)).tanh()};
}

/// The shape of a FullMLP.
struct Shape {
  int64_t dim = 1, depth = 1;
};

/// The same model every time for the same checker and shape.
inline lockstep::FullMLP make_model(const Checker& checker, Shape shape) {
  lockstep::FullMLP model(shape.dim, shape.depth, checker.seed());
  model->to(torch::kDouble);
  // With biases of 0 a sample that no ReLU lets through leaves the next layer at 0, where a ReLU has no
  // slope.
  auto numbers = at::detail::createCPUGenerator(checker.draw(2));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->named_parameters()) {
    if (parameter.value().dim() == 1) parameter.value().uniform_(-0.1, 0.1, numbers);
  }
  return model;
}

/// What went through a model, call by call.
struct Passes {
  std::vector<int64_t> forward, backward;  ///< Samples.
  std::vector<size_t> heap;                ///< Bytes that the process held in each forward.
};

inline int64_t sum(const std::vector<int64_t>& counts) {
  int64_t all = 0;
  for (const int64_t count : counts) all += count;
  return all;
}

/// A layer that changes nothing and counts what goes through it.
class CountingImpl : public torch::nn::Module {
 public:
  Tensor forward(const Tensor& x) {
    passes.forward.push_back(x.size(0));
    passes.heap.push_back(heap_bytes());
    if (x.requires_grad())
      x.register_hook([this](const Tensor& slope) { passes.backward.push_back(slope.size(0)); });
    return x;
  }
  Passes passes;
};
TORCH_MODULE(Counting);

/// A model whose passes are counted.
struct CountedModel {
  explicit CountedModel(lockstep::FullMLP counted) : model(std::move(counted)) {
    model->layers()->push_back("counting", counting);
  }
  CountedModel(const Checker& checker, Shape shape) : CountedModel(make_model(checker, shape)) {}
  lockstep::FullMLP model;
  Counting counting;
};

/// All weights in a row; a copy.
inline Tensor flat_weights(const lockstep::FullMLP& model) {
  std::vector<Tensor> parts;
  for (const auto& weight : model->parameters()) parts.push_back(weight.detach().flatten());
  return torch::cat(parts);
}

/// What the parameters hold as gradients, in the order of flat_weights(): zeros where one has none. A copy.
inline Tensor flat_gradients(const lockstep::FullMLP& model) {
  std::vector<Tensor> parts;
  for (const auto& weight : model->parameters())
    parts.push_back((weight.grad().defined() ? weight.grad() : torch::zeros_like(weight)).detach().flatten());
  return torch::cat(parts);
}

/// From here on each parameter has the gradient `value` everywhere; NaN: none at all.
inline void set_gradients(const lockstep::FullMLP& model, double value) {
  for (auto& weight : model->parameters())
    weight.mutable_grad() = std::isnan(value) ? Tensor() : torch::full_like(weight, value);
}

/// Where a number of flat_weights() belongs: "layers.3.weight, element 17".
inline std::string place(Shape shape, int64_t index) {
  const int64_t layer = shape.dim * (shape.dim + 1), in_layer = index % layer,
                squared = shape.dim * shape.dim;
  return in_layer < squared ? fmt::format("layers.{}.weight, element {}", index / layer, in_layer)
                            : fmt::format("layers.{}.bias, element {}", index / layer, in_layer - squared);
}

/// A layer of flat weights.
struct Layer {
  Tensor weight, bias;
};
inline Layer layer_of(const Tensor& weights, Shape shape, int64_t index) {
  const int64_t squared = shape.dim * shape.dim, begin = index * (squared + shape.dim);
  return {weights.narrow(0, begin, squared).view({shape.dim, shape.dim}),
          weights.narrow(0, begin + squared, shape.dim)};
}

/// The input of each layer, then the model's output.
inline std::vector<Tensor> activations_of(const Tensor& weights, Shape shape, const Tensor& input) {
  std::vector<Tensor> all = {input};
  for (int64_t i = 0; i < shape.depth; ++i) {
    const auto [weight, bias] = layer_of(weights, shape, i);
    const auto sums = torch::addmm(bias, all.back(), weight.t());
    all.push_back(i + 1 < shape.depth ? sums.relu() : sums);
  }
  return all;
}

inline Tensor output_of(const Tensor& weights, Shape shape, const Tensor& input) {
  return activations_of(weights, shape, input).back();
}

/// The mean squared error.
inline double loss_of(const Tensor& weights, Shape shape, const Tensor& input, const Tensor& target) {
  return (output_of(weights, shape, input) - target).square().mean().item<double>();
}

/// Its gradient, in the order of flat_weights().
inline Tensor gradient_of(const Tensor& weights, Shape shape, const Tensor& input, const Tensor& target) {
  const auto activations = activations_of(weights, shape, input);
  auto gradient = torch::empty_like(weights);
  auto slope = (activations.back() - target) * (2.0 / static_cast<double>(target.numel()));
  for (int64_t i = shape.depth - 1; i >= 0; --i) {
    const auto& entered = activations[static_cast<size_t>(i)];
    const auto into = layer_of(gradient, shape, i);
    into.weight.copy_(slope.t().matmul(entered));
    into.bias.copy_(slope.sum(0));
    if (i > 0) slope = slope.matmul(layer_of(weights, shape, i).weight) * (entered > 0);
  }
  return gradient;
}

/// Equal but for rounding.
inline bool close(const Tensor& one, const Tensor& other) {
  const double size = std::max(other.abs().max().item<double>(), 1e-30);
  return (one - other).abs().max().item<double>() <= 1e-6 * size;  // false for NaN
}
inline bool close(double one, double other) {
  return std::abs(one - other) <= 1e-6 * std::abs(other);
}

/// The number c with one = c * other; NaN if there is none.
inline double ratio(const Tensor& one, const Tensor& other) {
  const double times = (one.dot(other) / other.dot(other)).item<double>();
  return std::isfinite(times) && close(one, times * other) ? times : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace lab::mlp
