#include "parallel/ddp/demo_tools.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::ddp {

at::Tensor sample_input(const AnyModel& model, int64_t batch, uint64_t seed) {
  for (const auto& parameter : model->parameters()) {
    if (parameter.dim() == 2) {
      return at::randn({batch, parameter.size(1)}, at::detail::createCPUGenerator(seed));
    }
  }
  throw UsageError(
      "a model without a matrix: no width is known for its input; hint: give one that begins with a "
      "linear layer");
}

void drop_gradients(torch::nn::Module& module) {
  for (auto& parameter : module.parameters()) parameter.mutable_grad().reset();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace lockstep::ddp
