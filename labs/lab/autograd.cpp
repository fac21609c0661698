#include "lab/autograd.h"

#include <stdexcept>
#include <utility>

namespace lab {

namespace {

using torch::autograd::variable_list;

struct PostHook final : torch::autograd::FunctionPostHook {
  explicit PostHook(std::function<void()> wanted) : act(std::move(wanted)) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    act();
    return outputs;
  }
  const std::function<void()> act;
};

}  // namespace

GradientHook::GradientHook(const torch::Tensor& parameter, std::function<void()> act)
    : accumulator_(torch::autograd::impl::grad_accumulator(parameter)) {
  if (!accumulator_) {
    throw std::invalid_argument(
        "lab::after_gradient: the parameter needs no gradient; hint: frozen ones have requires_grad() false");
  }
  key_ = accumulator_->add_post_hook(std::make_unique<PostHook>(std::move(act)));
}

GradientHook::~GradientHook() {
  if (accumulator_) accumulator_->del_post_hook(key_);
}

GradientHook::GradientHook(GradientHook&& other) noexcept
    : accumulator_(std::move(other.accumulator_)), key_(other.key_) {}

GradientHook& GradientHook::operator=(GradientHook&& other) noexcept {
  std::swap(accumulator_, other.accumulator_);
  std::swap(key_, other.key_);
  return *this;
}

GradientHook after_gradient(const torch::Tensor& parameter, std::function<void()> act) {
  return {parameter, std::move(act)};
}

}  // namespace lab
