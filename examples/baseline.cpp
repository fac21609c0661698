// One process, one model, one loop: what everything else is compared with.
//
//   lockstep run --nproc-per-node 1 build/release/bin/example_baseline
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

int main() {
  constexpr int64_t kDim = 128, kBatch = 64, kSteps = 200;
  torch::manual_seed(0);

  // Something to learn: inputs and targets are two views of the same 8 hidden numbers. Every sample is new.
  const auto hidden = torch::randn({kSteps * kBatch, 8});
  const auto inputs = hidden.matmul(torch::randn({8, kDim})) / std::sqrt(8.0);
  const auto targets = hidden.matmul(torch::randn({8, kDim})).tanh();

  lockstep::FullMLP model(kDim, /*depth=*/16);  // 16 x Linear, ReLU between them
  torch::optim::Adam optimizer(model->parameters(), 1e-3);

  double first = 0, last = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto input = inputs.narrow(0, step * kBatch, kBatch);
    const auto target = targets.narrow(0, step * kBatch, kBatch);
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(model->forward(input), target);
    loss.backward();
    optimizer.step();

    last = loss.item<double>();
    if (step == 0) first = last;
    if ((step + 1) % 40 == 0) std::printf("step %3ld  loss %.4f\n", static_cast<long>(step + 1), last);
  }
  std::printf("loss: %.4f at first, %.4f at last\n", first, last);
  return last < 0.5 * first ? 0 : 1;
}
