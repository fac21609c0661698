// Naive data parallel training: every rank computes the gradients of its share of the batch, then an
// all-reduce for each of them, one after the other, then the optimizer. Right, simple, and the slowest way.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_naive
//   LOCKSTEP_TRACE=traces lockstep run ...      and tools/draw-trace draws the last step (docs/naive.md)
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  constexpr int64_t kDim = 128, kDepth = 16, kBatch = 64, kSteps = 12;
  constexpr uint64_t kSeed = 1;
  lockstep::DataParallelComms comms(lockstep::init_distributed());
  const int64_t share = kBatch / comms.world_size();

  lockstep::FullMLP model(kDim, kDepth, kSeed);  // the same seed: the same weights on all ranks
  lockstep::FullMLP alone(kDim, kDepth, kSeed);  // trained on whole batches, to compare with
  torch::optim::SGD optimizer(model->parameters(), 0.005);
  torch::optim::SGD alone_optimizer(alone->parameters(), 0.005);

  torch::manual_seed(0);  // all ranks draw the same batch, and each takes its own part of it
  static const lockstep::trace::Name kStep("naive step");
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto input = torch::randn({share * comms.world_size(), kDim});
    const auto target = input.roll(1, /*dims=*/1);
    const auto my_input = input.narrow(0, comms.rank() * share, share);
    const auto my_target = target.narrow(0, comms.rank() * share, share);

    alone_optimizer.zero_grad();
    const auto loss_alone = torch::mse_loss(alone->forward(input), target);
    loss_alone.backward();
    alone_optimizer.step();
    comms.barrier();

    const auto my_loss = [&] {
      const lockstep::trace::Scope scope(kStep, {.call = step});
      return lockstep::naive_data_parallel_step(model, comms, my_input, my_target, optimizer);
    }();

    const auto loss = comms.all_reduce_mean(my_loss.detach());  // equal shares: the mean of means is the mean
    if (comms.rank() == 0 && (step + 1) % 4 == 0) {
      std::printf("step %2ld  loss over all ranks %.6f, in one process %.6f\n", static_cast<long>(step + 1),
                  loss.item<double>(), loss_alone.item<double>());
    }
  }

  bool right = true;
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    const auto mine = model->parameters()[i].detach();
    right = right && torch::allclose(mine, alone->parameters()[i], 1e-4, 1e-5);
    for (const auto& theirs : comms.all_gather(mine)) right = right && torch::equal(theirs, mine);
  }
  if (comms.rank() == 0) {
    std::printf("%zu all-reduces a step; all ranks %s the weights of one process\n",
                model->parameters().size(), right ? "have" : "do NOT have");
  }
  return right ? 0 : 1;
}
