// The same training twice: single.cpp in one process, distributed.cpp on any number of them. `diff` shows
// what it takes; a test holds it to 8 lines, and both to the same loss.
//
//   lockstep run --nproc-per-node 1 build/release/bin/example_single
//   lockstep run --nproc-per-node 2 build/release/bin/example_distributed
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  constexpr int64_t kDim = 64, kDepth = 4, kSamples = 2048, kBatch = 64, kEpochs = 8;
  torch::manual_seed(0);
  const auto hidden = torch::randn({kSamples, 8});
  const auto inputs = hidden.matmul(torch::randn({8, kDim})) / 3;
  const auto targets = hidden.matmul(torch::randn({8, kDim})).tanh();

  lockstep::FullMLP model(kDim, kDepth);
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  lockstep::DistributedSampler sampler(kSamples);

  for (size_t epoch = 0; epoch < kEpochs; ++epoch) {
    sampler.set_epoch(epoch);
    while (const auto chosen = sampler.next(kBatch)) {
      const auto rows = torch::tensor(std::vector<int64_t>(chosen->begin(), chosen->end()));
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model(inputs.index_select(0, rows)), targets.index_select(0, rows));
      loss.backward();
      optimizer.step();
    }
  }

  const torch::NoGradGuard no_grad;
  const double loss = torch::mse_loss(model(inputs), targets).item<double>();
  std::printf("loss after %ld epochs: %.4f\n", static_cast<long>(kEpochs), loss);
  return loss < 0.3 ? 0 : 1;
}
