// GPipe: the batch is cut into micro-batches; all go forward, then all go back, and stages work on different
// ones at the same time. A rank keeps the activations of all of them.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_gpipe
//   lockstep plan pipeline --schedule gpipe --stages 2 --microbatches 8      draws it
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  constexpr int64_t kDim = 64, kDepth = 16, kBatch = 32;
  constexpr int kSteps = 20, kMicrobatches = 8;
  auto comm = lockstep::init_distributed();
  lockstep::PipelineComms comms(comm);
  lockstep::ShardedMLP stage(kDim, kDepth, comm.rank(), comm.world_size(), /*seed=*/1);
  torch::optim::SGD optimizer(stage->parameters(), 0.01);
  torch::manual_seed(0);
  const auto input = torch::randn({kBatch, kDim});
  const auto target = input.roll(1, /*dims=*/1);

  lockstep::FullMLP alone(kDim, kDepth, /*seed=*/1);  // the whole model in one process, to compare with
  torch::optim::SGD alone_optimizer(alone->parameters(), 0.01);

  torch::Tensor loss;
  double loss_alone = 0;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss = lockstep::gpipe_pipeline_step(stage, comms, input, target, kMicrobatches);
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
    const double others = comm.world_size() - 1;
    std::printf("a rank waits (P-1)/(M+P-1) = %.1f%% of the time while the pipeline fills and drains\n",
                100 * others / (kMicrobatches + others));
  }
  if (!right) std::printf("rank %d does NOT have the weights of one process\n", comm.rank());
  return right ? 0 : 1;
}
