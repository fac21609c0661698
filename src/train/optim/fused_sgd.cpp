#include "lockstep/train/optim/fused_sgd.h"

#include <ATen/ops/empty_like.h>

#include <memory>

#include "train/optim/fused_step.h"
#include "train/optim/kernels.h"
#include "train/optim/param_state.h"

namespace lockstep {

namespace {

using train::optim::is_laid_out_as;
using train::optim::Update;

template <typename T>
Update update_of(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& buffer,
                 bool first, const torch::optim::SGDOptions& options) {
  const train::optim::SgdArrays<T> arrays{
      .parameter = parameter.data_ptr<T>(),
      .gradient = gradient.data_ptr<T>(),
      .momentum_buffer = buffer.defined() ? buffer.data_ptr<T>() : nullptr};
  const train::optim::SgdRule<T> rule{.weight_decay = static_cast<T>(options.weight_decay()),
                                      .momentum = static_cast<T>(options.momentum()),
                                      .one_minus_dampening = static_cast<T>(1 - options.dampening()),
                                      .lr = static_cast<T>(options.lr()),
                                      .nesterov = options.nesterov(),
                                      .first = first};
  return {.count = parameter.numel(), .apply = [arrays, rule](int64_t begin, int64_t end) {
            train::optim::kernels().of<T>().sgd(arrays, rule, begin, end);
          }};
}

template <typename StateMap>
std::optional<Update> sgd_update(StateMap& states, const at::Tensor& parameter, const at::Tensor& gradient,
                                 const torch::optim::SGDOptions& options) {
  at::Tensor buffer;
  bool first = false;
  if (options.momentum() != 0) {
    auto& slot = states[train::optim::state_key<StateMap>(parameter)];
    if (slot == nullptr) {
      first = true;
      auto state = std::make_unique<torch::optim::SGDParamState>();
      state->momentum_buffer(at::empty_like(parameter, at::MemoryFormat::Preserve));
      slot = std::move(state);
    }
    buffer = static_cast<torch::optim::SGDParamState&>(*slot).momentum_buffer();
    if (!is_laid_out_as(buffer, parameter)) return std::nullopt;
  }
  if (parameter.scalar_type() == at::kDouble) {
    return update_of<double>(parameter, gradient, buffer, first, options);
  }
  return update_of<float>(parameter, gradient, buffer, first, options);
}

}  // namespace

torch::Tensor FusedSGD::step(LossClosure closure) {
  const train::optim::FusedStep fused{
      .name = "FusedSGD",
      .groups = param_groups_,
      .update =
          [this](const auto& parameter, const auto& gradient, const auto& options) {
            return sgd_update(state_, parameter, gradient,
                              static_cast<const torch::optim::SGDOptions&>(options));
          },
      .libtorch_step = [this] { torch::optim::SGD::step(); }};
  return fused.run(closure);
}

void FusedSGD::load(torch::serialize::InputArchive& archive) {
  train::optim::load_each_once(*this, [&] { torch::optim::SGD::load(archive); });
}

void FusedSGD::zero_grad(bool set_to_none) {
  train::optim::zero_grad(param_groups_, set_to_none);
}

}  // namespace lockstep
