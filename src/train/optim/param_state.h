#pragma once

#include <torch/optim/optimizer.h>

#include <string>
#include <type_traits>
#include <vector>

/// How LibTorch's optimizers keep what belongs to a parameter.
namespace lockstep::train::optim {

/// An address as std::ostream writes it.
std::string text_of_address(const void* address);

/// Under which key: the address of the tensor, as text in LibTorch 1.13.
template <typename StateMap>
typename StateMap::key_type state_key(const at::Tensor& parameter) {
  if constexpr (std::is_pointer_v<typename StateMap::key_type>) {
    return parameter.unsafeGetTensorImpl();
  } else {
    return text_of_address(parameter.unsafeGetTensorImpl());
  }
}

/// Puts another tensor in the place of every parameter that was given before, until destroyed.
class StandIns {
 public:
  explicit StandIns(std::vector<torch::optim::OptimizerParamGroup>& groups);
  ~StandIns();
  StandIns(const StandIns&) = delete;
  StandIns& operator=(const StandIns&) = delete;

  const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<torch::optim::OptimizerParamGroup>& groups_;
  std::vector<std::vector<at::Tensor>> given_;
  std::vector<at::Tensor> tensors_;
};

/// Runs LibTorch's load. Left alone, it takes away the state of a parameter that is given twice: it moves the
/// state out of the archive for the first place, and what is left of it for the second.
template <typename Load>
void load_each_once(torch::optim::Optimizer& optimizer, const Load& load) {
  const StandIns stand_ins(optimizer.param_groups());
  load();
  auto& state = optimizer.state();
  for (const auto& tensor : stand_ins.tensors()) {
    state.erase(state_key<std::decay_t<decltype(state)>>(tensor));
  }
}

}  // namespace lockstep::train::optim
