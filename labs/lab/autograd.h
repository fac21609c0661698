#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace lab {

/// A function that runs whenever backward has put a gradient into a parameter's grad(), as long as this
/// object lives. It runs on the thread of backward, which goes on when it returns.
class GradientHook {
 public:
  GradientHook() = default;
  GradientHook(const torch::Tensor& parameter, std::function<void()> act);
  ~GradientHook();
  GradientHook(GradientHook&& other) noexcept;
  GradientHook& operator=(GradientHook&& other) noexcept;

 private:
  // The parameter has but a weak pointer to it: kept here, or it would go, and the hook with it. Up to
  // LibTorch 2.6 a std::shared_ptr, in 2.14 a c10::intrusive_ptr.
  decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>())) accumulator_;
  uintptr_t key_ = 0;
};

/// Calls `act` after each backward that gives `parameter` a gradient: once, also if the parameter was used
/// several times, and after the gradient is in grad(). Keep what it returns. Throws std::invalid_argument for
/// a parameter that needs no gradient.
[[nodiscard]] GradientHook after_gradient(const torch::Tensor& parameter, std::function<void()> act);

}  // namespace lab
