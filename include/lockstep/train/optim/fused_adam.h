#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

namespace lockstep {

/// torch::optim::Adam whose step passes once over each parameter's memory (28 bytes a float32 parameter)
/// where LibTorch's passes a dozen times. Options, groups, state and checkpoints are LibTorch's own: either
/// loads what the other saved.
///
/// A step's results differ from LibTorch's by rounding alone: by at most 4 units in the last place of the
/// largest term that goes into them. They are the same bits on every CPU and for every number of threads.
///
/// The one pass is for float32 and float64 on the CPU, for tensors that fill their memory in the same order
/// as their gradient; others take LibTorch's step. A parameter without a gradient is left alone. A parameter
/// that is given twice (a tied weight) is stepped once, by the options of its first group: LibTorch's steps
/// it twice. Throws UsageError, before anything is changed, if a gradient is sparse.
///
/// Not for several threads at once, as torch's.
class FusedAdam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;

  torch::Tensor step(LossClosure closure = nullptr) override;
  void load(torch::serialize::InputArchive& archive) override;

  /// Lets go of the gradients, so that backward() need not add to zeros; or fills them with zeros. Hides
  /// LibTorch's, which is not virtual and, in 1.13, only fills.
  void zero_grad(bool set_to_none = true);
};

/// The same for torch::optim::AdamW.
class FusedAdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;

  torch::Tensor step(LossClosure closure = nullptr) override;
  void load(torch::serialize::InputArchive& archive) override;
  void zero_grad(bool set_to_none = true);  ///< As FusedAdam's.
};

}  // namespace lockstep
