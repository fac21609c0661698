#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"

namespace lockstep::pipeline {

/// Weights that stages on several ranks have in common. They start as the lowest rank's; after each step all
/// have the sum of their gradients, so that equal optimizers keep them equal to the last bit.
class TiedWeights {
 public:
  /// All ranks call it, each with what it has, by name.
  TiedWeights(Communicator& comm, const std::map<std::string, at::Tensor>& mine);

  /// Puts earlier gradients aside: only those of this step are to be added up.
  void open_step();
  void close_step();

 private:
  struct Weight {
    at::Tensor tensor;
    Communicator owners;
    at::Tensor earlier = {};
  };
  std::vector<Weight> weights_;
};

}  // namespace lockstep::pipeline
