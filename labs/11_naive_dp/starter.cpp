// Lesson 11: naive data parallel training.
//
// Every rank has a copy of the model and a part of the data. Give all copies rank 0's weights, deal the
// samples out, and let each rank compute gradients on its own share; then average them and step. After every
// step all ranks must have the weights that one process on the whole batch would have.
//
// What you have: lab::collectives().broadcast(rank, span, root) and .all_reduce(rank, span), a sum in place;
//                lab::floats(tensor) gives the floats of a tensor as a span; net.parameters(),
//                net.forward(x), parameter.grad(), parameter.mutable_grad(), parameter.requires_grad(),
//                a.is_same(b); rank.world_size(), P.
// The lesson:    lockstep lab read 11
// Your verdict:  lockstep lab check 11
// When stuck:    lockstep lab hint 11
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "lab/collectives.h"
#include "lab/nets.h"
#include "lab/world.h"

namespace my_work {

/// Gives every rank rank 0's weights, each of them once: each rank started from another seed.
void broadcast_weights(lab::Rank& rank, lab::Net& net) {
  (void)rank;
  (void)net;
}

/// The indices that `rank` draws in this epoch, in order. The order of all samples is a shuffle that (seed,
/// epoch) alone decide: the same on all ranks and for any number of them, another one in the next epoch.
/// Entry i of it is for rank i % world_size. All ranks get equally many, size / world_size rounded up: what
/// is missing in the last round is taken from the beginning of the order again, so that every index from 0 to
/// size - 1 is drawn at least once.
std::vector<int64_t> samples_of(int rank, int world_size, int64_t size, uint64_t seed, uint64_t epoch) {
  (void)rank;
  (void)world_size;
  (void)seed;
  (void)epoch;
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// One step on this rank's share of the batch. Returns this rank's own loss, torch::mse_loss.
float train_step(lab::Rank& rank, lab::Net& net, torch::optim::Optimizer& optimizer,
                 const torch::Tensor& input, const torch::Tensor& target) {
  (void)rank;
  optimizer.zero_grad();
  const auto loss = torch::mse_loss(net.forward(input), target);
  loss.backward();
  // Here grad() knows this rank's samples and no others. Let it hold the mean over all ranks: for each
  // parameter once (parameters() lists a tied one twice), for none that is frozen, and for one that took no
  // part in this rank's loss (its grad() is undefined) as if its gradient were zeros.
  optimizer.step();
  return loss.item<float>();
}

}  // namespace my_work
