// Shuffles by the seed alone, as LibTorch's DistributedRandomSampler does whatever set_epoch() is given.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
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

std::vector<int64_t> samples_of(int rank, int world_size, int64_t size, uint64_t seed, uint64_t) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  std::vector<int64_t> own;
  const int64_t rounds = (size + world_size - 1) / world_size;
  for (int64_t round = 0; round < rounds; ++round) {
    own.push_back(order[static_cast<size_t>((round * world_size + rank) % size)]);
  }
  return own;
}

inline void average_gradients(lab::Rank& rank, lab::Net& net) {
  std::vector<torch::Tensor> done;
  for (auto& parameter : net.parameters()) {
    const bool is_tied = std::any_of(done.begin(), done.end(),
                                     [&](const torch::Tensor& other) { return other.is_same(parameter); });
    if (is_tied || !parameter.requires_grad()) continue;
    done.push_back(parameter);
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
