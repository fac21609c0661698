#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"

namespace lockstep::ddp {

/// A parameter, once, however often the model holds it.
struct NamedParameter {
  std::string name;                      ///< The first under which the model holds it.
  std::vector<std::string> other_names;  ///< Those of the same tensor.
  at::Tensor tensor;
};

/// All of a model, each once, in the order of registration.
std::vector<NamedParameter> list_parameters(const torch::nn::Module& module);

/// The memory of a tensor that fills its memory without gaps, in whatever order its strides say. Throws
/// UsageError, naming it, for any other.
Buffer memory_of(const std::string& name, const at::Tensor& tensor);

/// One rank's copy of a model, among the copies of all ranks. All ranks make the same calls.
class Replica {
 public:
  Replica(std::shared_ptr<torch::nn::Module> module, Communicator comm);

  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const torch::nn::Module& module() const { return *module_; }

  /// Throws UsageError on all ranks, in the same words, if the models differ in anything but values.
  void compare_shapes();
  /// Throws Error on all ranks, naming the first parameter and rank, if values differ in any bit.
  void compare_weights(int64_t step);
  /// Which parameter the module has now that it had not when this was made; "" if none.
  std::string what_changed() const;
  void broadcast_parameters(int root);
  /// As the module holds them now: one that was replaced is followed.
  void broadcast_buffers(int root);
  bool has_buffers() const { return has_buffers_; }

 private:
  const std::shared_ptr<torch::nn::Module> module_;
  Communicator comm_;
  std::vector<NamedParameter> parameters_;
  bool has_buffers_ = false;
};

}  // namespace lockstep::ddp
