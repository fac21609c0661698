// Lesson 1: one step of training, and the loop around it.
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "lockstep/train/models/full_mlp.h"

namespace my_work {

double train_step(lockstep::FullMLP& model, const torch::Tensor& input, const torch::Tensor& target,
                  double lr) {
  model->zero_grad();
  const auto loss = (model->forward(input) - target).pow(2).mean();
  loss.backward();
  const torch::NoGradGuard no_grad;  // the update is not part of what is differentiated
  for (auto& weight : model->parameters()) weight -= lr * weight.grad();
  return loss.item<double>();
}

std::vector<double> train(lockstep::FullMLP& model, const torch::Tensor& inputs, const torch::Tensor& targets,
                          int64_t batch, double lr) {
  std::vector<double> losses;
  for (int64_t begin = 0; begin < inputs.size(0); begin += batch) {
    const int64_t count = std::min(batch, inputs.size(0) - begin);
    losses.push_back(train_step(model, inputs.narrow(0, begin, count), targets.narrow(0, begin, count), lr));
  }
  return losses;
}

}  // namespace my_work
