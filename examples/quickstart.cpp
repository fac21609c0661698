// The shortest data parallel program. README.md shows it from the first #include on.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_quickstart
#include <lockstep/lockstep.h>
#include <torch/torch.h>

int main() {
  auto comm = lockstep::init_distributed();  // rank, world size, engine: from the environment
  auto model = lockstep::FullMLP(/*dim=*/128, /*depth=*/16);
  auto ddp = lockstep::DistributedDataParallel(model, comm);
  auto optimizer = torch::optim::Adam(model->parameters(), 1e-3);
  auto x = torch::randn({32, 128}), y = x.roll(1, /*dims=*/1);  // this rank's share of the data
  double first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    auto loss = ddp.forward(x, y);
    loss.backward();  // leaves the mean of all ranks' gradients
    optimizer.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  return last < first / 2 ? 0 : 1;
}
