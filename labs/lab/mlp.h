#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lab/checker.h"
#include "lockstep/train/models/full_mlp.h"

/// For checks that look at how a learner's code moves the weights of a FullMLP. In doubles, so that rounding
/// is no excuse.
namespace lab::mlp {

/// Inputs and targets are two views of the same 2 hidden numbers: something to learn.
struct Samples {
  torch::Tensor inputs, targets;
  torch::Tensor input(int64_t begin, int64_t count) const { return inputs.narrow(0, begin, count); }
  torch::Tensor target(int64_t begin, int64_t count) const { return targets.narrow(0, begin, count); }
};

inline Samples make_samples(const Checker& checker, int64_t count, int64_t dim) {
  auto numbers = at::detail::createCPUGenerator(checker.draw(1));
  const auto hidden = torch::randn({count, 2}, numbers, torch::kDouble);
  return {hidden.matmul(torch::randn({2, dim}, numbers, torch::kDouble)) / 2,
          hidden.matmul(torch::randn({2, dim}, numbers, torch::kDouble)).tanh()};
}

/// The same model every time for the same checker and shape.
inline lockstep::FullMLP make_model(const Checker& checker, int64_t dim, int64_t depth) {
  lockstep::FullMLP model(dim, depth, checker.seed());
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

inline lockstep::FullMLP copy_of(const lockstep::FullMLP& model) {
  lockstep::FullMLP copy(model->dim(), model->depth(), 0);
  copy->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  const auto to = copy->parameters(), from = model->parameters();
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  return copy;
}

/// All weights in a row; a copy.
inline torch::Tensor flat_weights(const lockstep::FullMLP& model) {
  std::vector<torch::Tensor> parts;
  for (const auto& weight : model->parameters()) parts.push_back(weight.detach().flatten());
  return torch::cat(parts);
}

/// Where a number of flat_weights() belongs: "layers.3.weight, element 17".
inline std::string place(const lockstep::FullMLP& model, int64_t index) {
  for (const auto& parameter : model->named_parameters()) {
    if (index < parameter.value().numel()) return fmt::format("{}, element {}", parameter.key(), index);
    index -= parameter.value().numel();
  }
  return "?";
}

/// The mean squared error.
inline double loss_of(const lockstep::FullMLP& model, const torch::Tensor& input,
                      const torch::Tensor& target) {
  const torch::NoGradGuard no_grad;
  return lockstep::FullMLP(model)->forward(input, target).item<double>();
}

/// Its gradient, in the order of flat_weights(); the model is left alone.
inline torch::Tensor gradient_of(const lockstep::FullMLP& model, const torch::Tensor& input,
                                 const torch::Tensor& target) {
  auto twin = copy_of(model);
  twin->forward(input, target).backward();
  std::vector<torch::Tensor> parts;
  for (const auto& weight : twin->parameters()) parts.push_back(weight.grad().flatten());
  return torch::cat(parts);
}

/// Equal but for rounding.
inline bool close(const torch::Tensor& one, const torch::Tensor& other) {
  const double size = std::max(other.abs().max().item<double>(), 1e-30);
  return (one - other).abs().max().item<double>() <= 1e-6 * size;  // false for NaN
}
inline bool close(double one, double other) {
  return std::abs(one - other) <= 1e-6 * std::abs(other);
}

}  // namespace lab::mlp
