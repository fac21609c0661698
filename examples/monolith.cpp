// The model that the pipeline examples cut: 16 layers in one process, one step of training at a time.
//
//   lockstep run --nproc-per-node 1 build/release/bin/example_monolith
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  constexpr int64_t kDim = 64, kDepth = 16, kBatch = 32;
  constexpr int kSteps = 20;
  lockstep::FullMLP model(kDim, kDepth, /*seed=*/1);
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  torch::manual_seed(0);
  const auto input = torch::randn({kBatch, kDim});
  const auto target = input.roll(1, /*dims=*/1);

  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(model->forward(input), target);
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  std::printf("loss %.6f in step 1, %.6f in step %d\n", first, last, kSteps);
  return last < first ? 0 : 1;
}
