// Interleaved 1F1B: each rank has several stages that are not neighbours, so that a micro-batch comes by more
// often, and the bubble is divided by their number. The model is a Sequential, cut by the number of layers.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_interleaved
//   lockstep plan pipeline --schedule interleaved --stages 2 --microbatches 8 --chunks 2      draws it
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  constexpr int64_t kDim = 64, kDepth = 16, kBatch = 32;
  constexpr int kSteps = 20, kMicrobatches = 8;
  auto comm = lockstep::init_distributed();
  constexpr int kChunks = 2;
  const torch::nn::Sequential layers(lockstep::FullMLP(kDim, kDepth, /*seed=*/1)->layers());
  const int stages = comm.world_size() * kChunks;
  const auto cuts = lockstep::cut_by_count(static_cast<int64_t>(layers->size()), stages);
  std::vector<lockstep::AnyModel> chunks;
  std::vector<torch::Tensor> parameters;
  for (int number = comm.rank(); number < stages; number += comm.world_size()) {
    const auto stage = lockstep::take_stage(layers, cuts, number);
    chunks.emplace_back(stage);
    for (const auto& parameter : stage->parameters()) parameters.push_back(parameter);
  }
  torch::optim::SGD optimizer(parameters, 0.01);
  // One Pipeline for all steps: shapes between stages are found out in the first.
  lockstep::Pipeline pipeline(chunks, comm, lockstep::mean_squared_error,
                              {.schedule = "interleaved", .microbatches = kMicrobatches});
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
  for (const auto& chunk : chunks) {
    for (const auto& item : chunk->named_parameters()) {
      right = right && torch::allclose(item.value(), expected["layers." + item.key()], 1e-4, 1e-5);
    }
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
