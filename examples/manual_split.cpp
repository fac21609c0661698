// A model cut in two by hand, in one process: the graph really is cut. The activation goes over as a leaf of
// its own; its gradient comes back as what the first half's backward starts from. Between two processes these
// two hand-overs are messages, and nothing else changes: see naive_pipeline.cpp.
//
//   lockstep run --nproc-per-node 1 build/release/bin/example_manual_split
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  constexpr int64_t kDim = 64, kDepth = 16, kBatch = 32;
  lockstep::FullMLP whole(kDim, kDepth, /*seed=*/1);
  lockstep::ShardedMLP first(kDim, kDepth, /*rank=*/0, /*world_size=*/2, /*seed=*/1);
  lockstep::ShardedMLP second(kDim, kDepth, /*rank=*/1, /*world_size=*/2, /*seed=*/1);
  torch::manual_seed(0);
  const auto input = torch::randn({kBatch, kDim});
  const auto target = input.roll(1, /*dims=*/1);

  const auto loss_of_whole = torch::mse_loss(whole->forward(input), target);
  loss_of_whole.backward();

  const auto activation = first->forward(input);
  const auto handed_over = activation.detach().requires_grad_();  // the cut: a leaf, with no past
  const auto loss = torch::mse_loss(second->forward(handed_over), target);
  loss.backward();  // ends at the cut ...
  bool right = !first->parameters()[0].grad().defined();
  activation.backward(handed_over.grad());  // ... and goes on from there by hand

  size_t next = 0;
  for (const auto& half : {first, second}) {
    for (const auto& parameter : half->parameters()) {
      right = right && torch::equal(parameter.grad(), whole->parameters()[next++].grad());
    }
  }
  std::printf("loss %.6f in two halves, %.6f in one\n", loss.item<double>(), loss_of_whole.item<double>());
  std::printf("all %zu gradients are %s\n", next, right ? "the same to the last bit" : "NOT the same");
  return right ? 0 : 1;
}
