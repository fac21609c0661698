#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

/// What the fused optimizers have in common. A step is a list of updates, one for each parameter, and an
/// update can be done piece by piece: who shares the work between threads, or later between ranks, only
/// chooses pieces.
namespace lockstep::train::optim {

/// What a step does to one parameter.
struct Update {
  int64_t count = 0;                                      ///< Of elements.
  std::function<void(int64_t begin, int64_t end)> apply;  ///< To the elements [begin, end), each only once.
};

/// Applies all of them, on torch's threads.
void apply_updates(const std::vector<Update>& updates);

/// Whether the kernels know the type of this tensor and find its elements in memory, without gaps.
bool is_flat(const at::Tensor& tensor);

/// Whether `tensor` is flat too, and its i-th element in memory belongs to the i-th of `model`, a flat one.
bool is_laid_out_as(const at::Tensor& tensor, const at::Tensor& model);

using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;

/// One step of a fused optimizer.
struct FusedStep {
  std::string_view name;
  ParamGroups& groups;
  /// None if the parameter has to take LibTorch's step; then nothing was changed. Both tensors are flat, and
  /// laid out alike.
  std::function<std::optional<Update>(const at::Tensor& parameter, const at::Tensor& gradient,
                                      const torch::optim::OptimizerOptions& options)>
      update;
  std::function<void()> libtorch_step;  ///< Of the parameters that are in `groups` when it is called.

  at::Tensor run(const torch::optim::Optimizer::LossClosure& closure) const;
};

void zero_grad(ParamGroups& groups, bool set_to_none);

}  // namespace lockstep::train::optim
