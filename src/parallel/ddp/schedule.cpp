#include "lockstep/parallel/ddp/schedule.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "lockstep/error.h"
#include "parallel/ddp/buckets.h"
#include "parallel/ddp/replica.h"

namespace lockstep {

namespace {

at::Tensor& gradient_of(const ddp::NamedParameter& parameter) {
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (gradient.defined()) return gradient;
  throw UsageError(
      fmt::format("average_gradients: parameter '{}' has no gradient; hint: call it after backward(), "
                  "on a model all of whose parameters take part in the loss",
                  parameter.name));
}

}  // namespace

void average_gradients(const torch::nn::Module& module, DataParallelComms& comms) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : ddp::list_parameters(module)) {
    if (parameter.tensor.requires_grad()) gradients.push_back(gradient_of(parameter));
  }
  for (const auto& gradient : gradients) comms.all_reduce_mean(gradient);
}

void average_gradients(const torch::nn::Module& first, const torch::nn::Module& second) {
  const at::NoGradGuard no_grad;
  const auto of_first = ddp::list_parameters(first);
  const auto of_second = ddp::list_parameters(second);
  for (size_t i = 0; i < of_first.size(); ++i) {
    at::Tensor& one = gradient_of(of_first[i]);
    at::Tensor& other = gradient_of(of_second.at(i));
    one.add_(other).div_(2);
    other.copy_(one);
  }
}

BucketedDDPHooks register_ddp_hooks(const AnyModel& model, DataParallelComms& comms) {
  return {model, comms, ddp::kOneGradientMib};
}

}  // namespace lockstep
