#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace lockstep::ddp {

/// Calls a function whenever autograd has added a gradient to a parameter, as long as this object lives.
///
/// A parameter loses such hooks when its type changes (`Module::to(dtype)`, also there and back) and when it
/// is loaded: is_armed() tells.
class GradientHook {
 public:
  /// Once for each backward, or for each inner one; also if there was nothing to add.
  using Act = std::function<void()>;

  GradientHook() = default;
  GradientHook(const at::Tensor& parameter, Act act);
  ~GradientHook();
  GradientHook(GradientHook&& other) noexcept = default;
  GradientHook& operator=(GradientHook&& other) noexcept;

  bool is_armed(const at::Tensor& parameter) const;

  /// Within a backward: whether it may add a gradient to the parameter. `torch::autograd::grad` does not.
  bool may_come() const;

 private:
  // The parameter has but a weak pointer to it: kept here, or it would go, and the hook with it. Up to
  // LibTorch 2.6 a std::shared_ptr, in 2.14 a c10::intrusive_ptr.
  decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>())) accumulator_;
  uintptr_t key_ = 0;
};

}  // namespace lockstep::ddp
