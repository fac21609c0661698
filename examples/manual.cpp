// Data parallel training without any communication: two copies of a model in one process, each on its half of
// the batch, gradients averaged by hand. They end where one model on the whole batch ends.
//
//   lockstep run --nproc-per-node 1 build/release/bin/example_manual
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>

namespace {

/// The largest difference between two models' weights.
double difference(const lockstep::FullMLP& one, const lockstep::FullMLP& other) {
  double largest = 0;
  for (size_t i = 0; i < one->parameters().size(); ++i) {
    const auto apart = (one->parameters()[i] - other->parameters()[i]).abs().max();
    largest = std::max(largest, apart.item<double>());
  }
  return largest;
}

}  // namespace

int main() {
  constexpr int64_t kDim = 64, kDepth = 4, kBatch = 32, kSteps = 50;
  constexpr uint64_t kSeed = 1;
  torch::manual_seed(0);

  lockstep::FullMLP first(kDim, kDepth, kSeed), second(kDim, kDepth, kSeed);  // equal: the same seed
  lockstep::FullMLP whole(kDim, kDepth, kSeed);
  lockstep::FullMLP halves_only(kDim, kDepth, kSeed);
  torch::optim::SGD first_optimizer(first->parameters(), 0.05);
  torch::optim::SGD second_optimizer(second->parameters(), 0.05);
  torch::optim::SGD whole_optimizer(whole->parameters(), 0.05);
  torch::optim::SGD halves_only_optimizer(halves_only->parameters(), 0.05);

  double loss = 0, whole_loss = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto input = torch::randn({kBatch, kDim});
    const auto target = input.roll(1, /*dims=*/1);

    // The step to look at; include/lockstep/parallel/ddp/schedule.h has its dozen lines.
    loss =
        lockstep::manual_data_parallel_step(first, second, input, target, first_optimizer, second_optimizer)
            .item<double>();

    // One model on the whole batch ...
    whole_optimizer.zero_grad();
    const auto of_whole = torch::mse_loss(whole->forward(input), target);
    of_whole.backward();
    whole_optimizer.step();
    whole_loss = of_whole.item<double>();

    // ... and what a copy becomes that nobody averages with: backward() knows only its own half.
    halves_only_optimizer.zero_grad();
    torch::mse_loss(halves_only->forward(input.chunk(2)[0]), target.chunk(2)[0]).backward();
    halves_only_optimizer.step();
  }

  std::printf("after %ld steps, loss of two copies %.6f, of one model %.6f\n", static_cast<long>(kSteps),
              loss, whole_loss);
  std::printf("largest difference of a weight\n");
  std::printf("  between the two copies                        %.1e\n", difference(first, second));
  std::printf("  between a copy and one model on all           %.1e\n", difference(first, whole));
  std::printf("  between that and a copy that nobody averages  %.1e\n", difference(halves_only, whole));
  const bool right = difference(first, second) == 0 && difference(first, whole) < 1e-5 &&
                     difference(halves_only, whole) > 1e-3;
  return right ? 0 : 1;
}
