#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace lockstep::parallel {

/// Puts the state of torch's default generator back at the end of a block that draws from it, or seeds it.
class KeepDefaultGenerator {
 public:
  KeepDefaultGenerator() {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeepDefaultGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeepDefaultGenerator(const KeepDefaultGenerator&) = delete;
  KeepDefaultGenerator& operator=(const KeepDefaultGenerator&) = delete;

 private:
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  at::Tensor state_;
};

}  // namespace lockstep::parallel
