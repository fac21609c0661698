#include "train/run/optimizer.h"

namespace lockstep::train {

std::unique_ptr<FusedAdamW> make_optimizer(const Weights& weights, const TrainSettings& settings) {
  std::vector<at::Tensor> matrices, others;
  for (const auto& [name, weight] : weights) {
    if (!weight.tensor.requires_grad()) continue;
    (weight.tensor.dim() >= 2 ? matrices : others).push_back(weight.tensor);
  }
  const auto options = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(settings.lr).betas({0.9, 0.99}).weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices, options(settings.weight_decay));
  groups.emplace_back(others, options(0));
  return std::make_unique<FusedAdamW>(groups, torch::optim::AdamWOptions(settings.lr));
}

}  // namespace lockstep::train
