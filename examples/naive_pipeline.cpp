// A pipeline that stops and waits: the batch goes forward through all stages and back, and all ranks but one
// are idle at any time. Written out by hand in src/parallel/pipeline/schedule.cpp.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_naive_pipeline
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  constexpr int64_t kDim = 64, kDepth = 16, kBatch = 32;
  constexpr int kSteps = 20;
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
    loss = lockstep::naive_pipeline_step_by_hand(stage, comms, input, target, {kBatch, kDim});
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
    std::printf("at any time 1 rank of %d works, the others wait\n", comm.world_size());
  }
  if (!right) std::printf("rank %d does NOT have the weights of one process\n", comm.rank());
  return right ? 0 : 1;
}
