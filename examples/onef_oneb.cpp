// 1F1B: as GPipe, but a rank goes back as soon as it can, a forward and a backward by turns. The bubble is
// the same; rank r of P keeps P - r activations instead of all.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_onef_oneb
//   lockstep plan pipeline --schedule 1f1b --stages 2 --microbatches 8      draws it
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  constexpr int64_t kDim = 64, kDepth = 16, kBatch = 32;
  constexpr int kSteps = 20, kMicrobatches = 8;
  auto comm = lockstep::init_distributed();
  lockstep::ShardedMLP stage(kDim, kDepth, comm.rank(), comm.world_size(), /*seed=*/1);
  torch::optim::SGD optimizer(stage->parameters(), 0.01);
  // One Pipeline for all steps: shapes between stages are found out in the first.
  lockstep::Pipeline pipeline(stage, comm, lockstep::mean_squared_error,
                              {.schedule = "1f1b", .microbatches = kMicrobatches});
  torch::manual_seed(0);
  const auto input = torch::randn({kBatch, kDim});
  const auto target = input.roll(1, /*dims=*/1);

  lockstep::FullMLP alone(kDim, kDepth, /*seed=*/1);  // the whole model in one process, to compare with
  torch::optim::SGD alone_optimizer(alone->parameters(), 0.01);

  torch::Tensor loss;
  double loss_alone = 0;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss = pipeline.step(input, target);
    optimizer.step();

    alone_optimizer.zero_grad();
    const auto of_all = torch::mse_loss(alone->forward(input), target);
    of_all.backward();
    alone_optimizer.step();
    loss_alone = of_all.item<double>();
  }

  bool right = true;
  const auto expected = alone->named_parameters();
  for (const auto& item : stage->named_parameters()) {
    right = right && torch::allclose(item.value(), expected[item.key()], 1e-4, 1e-5);
  }
  if (loss.defined()) {  // on the last rank
    std::printf("loss of step %d: %.6f over %d ranks, %.6f in one process\n", kSteps, loss.item<double>(),
                comm.world_size(), loss_alone);
  }
  std::printf("rank %d kept the activations of %g of %d micro-batches at once\n", comm.rank(),
              pipeline.report().peak_activations, kMicrobatches);
  if (!right) std::printf("rank %d does NOT have the weights of one process\n", comm.rank());
  return right ? 0 : 1;
}
