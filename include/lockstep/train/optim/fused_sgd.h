#pragma once

#include <torch/optim/sgd.h>

namespace lockstep {

/// torch::optim::SGD whose step passes once over each parameter's memory (20 bytes a float32 parameter with
/// momentum). All else is as said of FusedAdam: LibTorch's options, state and checkpoints; results within 4
/// units in the last place of the largest term; a parameter that is given twice is stepped once.
class FusedSGD : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;

  torch::Tensor step(LossClosure closure = nullptr) override;
  void load(torch::serialize::InputArchive& archive) override;

  /// Lets go of the gradients, so that backward() need not add to zeros; or fills them with zeros. Hides
  /// LibTorch's, which is not virtual and, in 1.13, only fills.
  void zero_grad(bool set_to_none = true);
};

}  // namespace lockstep
