#pragma once

#include <torch/torch.h>

#include "lockstep/comms/communicator.h"
#include "parallel/random_tensor.h"

// Models that do what users' models do.
namespace lockstep::test {

constexpr int64_t kWidth = 4;

/// This rank's batch.
inline torch::Tensor input_of(const Communicator& comm, int64_t rows = 3) {
  return random(10 + static_cast<uint64_t>(comm.rank()), {rows, kWidth});
}

/// Two heads, of which a flag chooses; both, or none, may take part.
struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() {
    body = register_module("body", torch::nn::Linear(kWidth, kWidth));
    left = register_module("left", torch::nn::Linear(kWidth, kWidth));
    right = register_module("right", torch::nn::Linear(kWidth, kWidth));
  }
  torch::Tensor forward(const torch::Tensor& input, bool goes_left, bool goes_right) {
    auto output = body->forward(input).tanh();
    if (goes_left) output = left->forward(output);
    if (goes_right) output = right->forward(output);
    return output;
  }
  torch::nn::Linear body = nullptr, left = nullptr, right = nullptr;
};
TORCH_MODULE(TwoHeads);

/// Statistics that forward changes: buffers.
struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    norm = register_module("norm", torch::nn::BatchNorm1d(kWidth));
    linear = register_module("linear", torch::nn::Linear(kWidth, 1));
  }
  torch::Tensor forward(const torch::Tensor& input) { return linear->forward(norm->forward(input)); }
  torch::nn::BatchNorm1d norm = nullptr;
  torch::nn::Linear linear = nullptr;
};

/// Calls a function in the middle of backward, with the gradient.
class AtBackward : public torch::autograd::Function<AtBackward> {
 public:
  using Act = std::function<void()>;
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               const std::shared_ptr<Act>& act) {
    context->saved_data["act"] = reinterpret_cast<int64_t>(act.get());
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    (*reinterpret_cast<Act*>(context->saved_data["act"].toInt()))();
    return {gradients[0], torch::Tensor()};
  }
};

/// Activation checkpointing: keeps the input alone, and runs the module anew in backward, by a backward
/// within.
class Checkpoint : public torch::autograd::Function<Checkpoint> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               torch::nn::LinearImpl* module) {
    context->save_for_backward({input});
    context->saved_data["module"] = reinterpret_cast<int64_t>(module);
    const torch::NoGradGuard no_grad;
    return module->forward(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto input = context->get_saved_variables()[0].detach().requires_grad_();
    auto* const module = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["module"].toInt());
    const torch::AutoGradMode grad_mode(true);
    module->forward(input).backward(gradients[0]);
    return {input.grad(), torch::Tensor()};
  }
};

/// The same for a linear layer, without a backward within: the weights are inputs, and get their gradients
/// from outside.
class CheckpointByGrad : public torch::autograd::Function<CheckpointByGrad> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor& weight, const torch::Tensor& bias) {
    context->save_for_backward({input, weight, bias});
    return torch::linear(input, weight, bias);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    std::vector<torch::Tensor> inputs;
    for (const auto& saved : context->get_saved_variables())
      inputs.push_back(saved.detach().requires_grad_());
    const torch::AutoGradMode grad_mode(true);
    return torch::autograd::grad({torch::linear(inputs[0], inputs[1], inputs[2])}, inputs, {gradients[0]});
  }
};

}  // namespace lockstep::test
