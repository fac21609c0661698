#include <lockstep/lockstep.h>

#include <cstdio>

int main() {
  lockstep::FullMLP model(/*dim=*/8, /*depth=*/4);
  const torch::Tensor output = model(torch::ones({3, 8}));
  std::printf("FullMLP: %lld x %lld\n", static_cast<long long>(output.size(0)),
              static_cast<long long>(output.size(1)));
  return output.size(0) == 3 && output.size(1) == 8 && output.requires_grad() ? 0 : 1;
}
