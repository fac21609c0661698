#include "cli/bench_ddp_optimizer.h"

#include <fmt/format.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <memory>

#include "lockstep/error.h"
#include "lockstep/train/optim/fused_adam.h"
#include "lockstep/train/optim/fused_sgd.h"

namespace lockstep::cli {

namespace {

constexpr double kMomentum = 0.9;

template <typename Optimizer>
DdpOptimizer wrap(std::shared_ptr<Optimizer> optimizer) {
  return {.zero_grad = [optimizer] { optimizer->zero_grad(); }, .step = [optimizer] { optimizer->step(); }};
}

}  // namespace

DdpOptimizer make_ddp_optimizer(const std::string& name, double lr, const std::vector<at::Tensor>& parameters,
                                bool stock) {
  const torch::optim::AdamOptions adam(lr);
  const auto sgd = torch::optim::SGDOptions(lr).momentum(kMomentum);
  const bool ours = !stock;
  if (name == "adam" && ours) return wrap(std::make_shared<FusedAdam>(parameters, adam));
  if (name == "adam" || name == "torch-adam")
    return wrap(std::make_shared<torch::optim::Adam>(parameters, adam));
  if (name == "sgd" && ours) return wrap(std::make_shared<FusedSGD>(parameters, sgd));
  if (name == "sgd") return wrap(std::make_shared<torch::optim::SGD>(parameters, sgd));
  throw UsageError(fmt::format("optimizer '{}': not known; hint: adam, sgd or torch-adam", name));
}

}  // namespace lockstep::cli
