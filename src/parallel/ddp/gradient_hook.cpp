#include "parallel/ddp/gradient_hook.h"

#include <torch/csrc/autograd/graph_task.h>

namespace lockstep::ddp {

namespace {

using torch::autograd::variable_list;

struct PostHook final : torch::autograd::FunctionPostHook {
  explicit PostHook(GradientHook::Act wanted) : act(std::move(wanted)) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    act();
    return outputs;
  }
  const GradientHook::Act act;
};

}  // namespace

GradientHook::GradientHook(const at::Tensor& parameter, Act act)
    : accumulator_(torch::autograd::impl::grad_accumulator(parameter)),
      key_(accumulator_->add_post_hook(std::make_unique<PostHook>(std::move(act)))) {}

GradientHook::~GradientHook() {
  if (accumulator_) accumulator_->del_post_hook(key_);
}

GradientHook& GradientHook::operator=(GradientHook&& other) noexcept {
  std::swap(accumulator_, other.accumulator_);
  std::swap(key_, other.key_);
  return *this;
}

bool GradientHook::is_armed(const at::Tensor& parameter) const {
  return accumulator_ &&
         torch::autograd::impl::try_get_grad_accumulator(parameter).get() == accumulator_.get();
}

bool GradientHook::may_come() const {
  const auto* const wanted = torch::autograd::get_current_graph_task_exec_info();
  if (wanted == nullptr || wanted->empty()) return true;  // a backward that goes everywhere
  const auto found = wanted->find(accumulator_.get());
  return found != wanted->end() && found->second.needed_;
}

}  // namespace lockstep::ddp
