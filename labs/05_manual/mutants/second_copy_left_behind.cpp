// Averages, and forgets to move the second copy.
#include <torch/torch.h>

#include "lockstep/train/models/full_mlp.h"

namespace my_work {

double manual_step(lockstep::FullMLP& first, lockstep::FullMLP& second, const torch::Tensor& input,
                   const torch::Tensor& target, double lr) {
  const int64_t samples = input.size(0), half = (samples + 1) / 2, rest = samples - half;
  first->zero_grad();
  second->zero_grad();
  const auto first_loss =
      torch::mse_loss(first->forward(input.narrow(0, 0, half)), target.narrow(0, 0, half));
  const auto second_loss =
      torch::mse_loss(second->forward(input.narrow(0, half, rest)), target.narrow(0, half, rest));
  first_loss.backward();
  second_loss.backward();
  const double first_part = static_cast<double>(half) / static_cast<double>(samples);
  const double second_part = static_cast<double>(rest) / static_cast<double>(samples);
  const torch::NoGradGuard no_grad;
  const auto of_first = first->parameters(), of_second = second->parameters();
  for (size_t i = 0; i < of_first.size(); ++i) {
    const auto gradient = first_part * of_first[i].grad() + second_part * of_second[i].grad();
    of_first[i].sub_(lr * gradient);
  }
  return first_part * first_loss.item<double>() + second_part * second_loss.item<double>();
}

}  // namespace my_work
