// Lesson 11: naive data parallel training: broadcast, deal out, average.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "lab/collectives.h"
#include "lab/nets.h"
#include "lab/world.h"

namespace my_work {

void broadcast_weights(lab::Rank& rank, lab::Net& net) {
  for (const auto& parameter : net.parameters()) {  // frozen ones, too
    lab::collectives().broadcast(rank, lab::floats(parameter), /*root=*/0);
  }
}

std::vector<int64_t> samples_of(int rank, int world_size, int64_t size, uint64_t seed, uint64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed + epoch));
  const int64_t rounds = (size + world_size - 1) / world_size;  // the last one is filled from the beginning
  std::vector<int64_t> own;
  for (int64_t i = rank; i < rounds * world_size; i += world_size)
    own.push_back(order[static_cast<size_t>(i % size)]);
  return own;
}

inline void average_gradients(lab::Rank& rank, lab::Net& net) {
  const auto parameters = net.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& parameter = parameters[i];
    const bool is_tied = std::ranges::any_of(
        std::span(parameters).first(i), [&](const torch::Tensor& other) { return other.is_same(parameter); });
    if (is_tied || !parameter.requires_grad()) continue;
    auto& gradient = parameter.mutable_grad();
    if (!gradient.defined()) gradient = torch::zeros_like(parameter);
    lab::collectives().all_reduce(rank, lab::floats(gradient));
    gradient.div_(rank.world_size());
  }
}

float train_step(lab::Rank& rank, lab::Net& net, torch::optim::Optimizer& optimizer,
                 const torch::Tensor& input, const torch::Tensor& target) {
  optimizer.zero_grad();
  const auto loss = torch::mse_loss(net.forward(input), target);
  loss.backward();
  average_gradients(rank, net);
  optimizer.step();
  return loss.item<float>();
}

}  // namespace my_work
