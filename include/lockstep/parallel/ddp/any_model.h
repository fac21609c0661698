#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"

namespace lockstep {

/// A model of any type that makes one tensor of another; from a module holder or a shared_ptr to a module.
class AnyModel {
 public:
  template <typename Handle>
  AnyModel(const Handle& model)  // NOLINT(google-explicit-constructor): stands for the model
      : module_(ddp::module_of(model)),
        forward_([impl = ddp::module_of(model)](const at::Tensor& input) { return impl->forward(input); }) {}

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  torch::nn::Module* operator->() const { return module_.get(); }
  torch::nn::Module& operator*() const { return *module_; }
  at::Tensor forward(const at::Tensor& input) const { return forward_(input); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::function<at::Tensor(const at::Tensor&)> forward_;
};

}  // namespace lockstep
