#include "lockstep/train/optim/fused_adam.h"

#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <memory>
#include <tuple>

#include "train/optim/fused_step.h"
#include "train/optim/kernels.h"
#include "train/optim/param_state.h"

namespace lockstep {

namespace {

using train::optim::is_laid_out_as;
using train::optim::Update;

enum class Decay { kIntoGradient, kOfParameter };

template <typename T, typename Options>
train::optim::AdamRule<T> rule_of(const Options& options, Decay decay, int64_t step) {
  const auto [beta1, beta2] = options.betas();
  const double correction1 = 1 - std::pow(beta1, step);
  const double correction2 = 1 - std::pow(beta2, step);
  const bool shrinks = decay == Decay::kOfParameter;
  return {.shrink = static_cast<T>(shrinks ? 1 - options.lr() * options.weight_decay() : 1),
          .weight_decay = static_cast<T>(shrinks ? 0 : options.weight_decay()),
          .beta1 = static_cast<T>(beta1),
          .one_minus_beta1 = static_cast<T>(1 - beta1),
          .beta2 = static_cast<T>(beta2),
          .one_minus_beta2 = static_cast<T>(1 - beta2),
          .root_scale = static_cast<T>(1 / std::sqrt(correction2)),
          .eps = static_cast<T>(options.eps()),
          .step_size = static_cast<T>(options.lr() / correction1)};
}

template <typename T>
Update update_of(const at::Tensor& parameter, const at::Tensor& gradient,
                 const train::optim::AdamRule<T>& rule, const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq, const at::Tensor& max_exp_avg_sq) {
  const train::optim::AdamArrays<T> arrays{
      .parameter = parameter.data_ptr<T>(),
      .gradient = gradient.data_ptr<T>(),
      .exp_avg = exp_avg.data_ptr<T>(),
      .exp_avg_sq = exp_avg_sq.data_ptr<T>(),
      .max_exp_avg_sq = max_exp_avg_sq.defined() ? max_exp_avg_sq.data_ptr<T>() : nullptr};
  return {.count = parameter.numel(), .apply = [arrays, rule](int64_t begin, int64_t end) {
            train::optim::kernels().of<T>().adam(arrays, rule, begin, end);
          }};
}

template <typename State, typename Options, typename StateMap>
std::optional<Update> adam_update(StateMap& states, const at::Tensor& parameter, const at::Tensor& gradient,
                                  const Options& options, Decay decay) {
  auto& slot = states[train::optim::state_key<StateMap>(parameter)];
  if (slot == nullptr) {
    auto state = std::make_unique<State>();
    state->step(0);
    state->exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    state->exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    if (options.amsgrad()) state->max_exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    slot = std::move(state);
  }
  auto& state = static_cast<State&>(*slot);
  const at::Tensor largest = options.amsgrad() ? state.max_exp_avg_sq() : at::Tensor();
  if (!is_laid_out_as(state.exp_avg(), parameter) || !is_laid_out_as(state.exp_avg_sq(), parameter) ||
      (options.amsgrad() && !is_laid_out_as(largest, parameter))) {
    return std::nullopt;
  }
  state.step(state.step() + 1);
  if (parameter.scalar_type() == at::kDouble) {
    return update_of(parameter, gradient, rule_of<double>(options, decay, state.step()), state.exp_avg(),
                     state.exp_avg_sq(), largest);
  }
  return update_of(parameter, gradient, rule_of<float>(options, decay, state.step()), state.exp_avg(),
                   state.exp_avg_sq(), largest);
}

}  // namespace

torch::Tensor FusedAdam::step(LossClosure closure) {
  const train::optim::FusedStep fused{
      .name = "FusedAdam",
      .groups = param_groups_,
      .update =
          [this](const auto& parameter, const auto& gradient, const auto& options) {
            return adam_update<torch::optim::AdamParamState>(
                state_, parameter, gradient, static_cast<const torch::optim::AdamOptions&>(options),
                Decay::kIntoGradient);
          },
      .libtorch_step = [this] { torch::optim::Adam::step(); }};
  return fused.run(closure);
}

void FusedAdam::load(torch::serialize::InputArchive& archive) {
  train::optim::load_each_once(*this, [&] { torch::optim::Adam::load(archive); });
}

void FusedAdam::zero_grad(bool set_to_none) {
  train::optim::zero_grad(param_groups_, set_to_none);
}

torch::Tensor FusedAdamW::step(LossClosure closure) {
  const train::optim::FusedStep fused{
      .name = "FusedAdamW",
      .groups = param_groups_,
      .update =
          [this](const auto& parameter, const auto& gradient, const auto& options) {
            return adam_update<torch::optim::AdamWParamState>(
                state_, parameter, gradient, static_cast<const torch::optim::AdamWOptions&>(options),
                Decay::kOfParameter);
          },
      .libtorch_step = [this] { torch::optim::AdamW::step(); }};
  return fused.run(closure);
}

void FusedAdamW::load(torch::serialize::InputArchive& archive) {
  train::optim::load_each_once(*this, [&] { torch::optim::AdamW::load(archive); });
}

void FusedAdamW::zero_grad(bool set_to_none) {
  train::optim::zero_grad(param_groups_, set_to_none);
}

}  // namespace lockstep
