#pragma once

#include <array>
#include <optional>
#include <utility>

#include "05_manual/check.h"
#include "lab/mlp.h"

namespace lab::manual {

/// What a call of manual_step found and left.
struct Seen {
  double loss = 0;
  torch::Tensor before;                             ///< Weights of the first copy.
  std::pair<torch::Tensor, torch::Tensor> carried;  ///< What .grad() held before, of each copy.
  std::pair<torch::Tensor, torch::Tensor> after;    ///< Weights of each copy.
  torch::Tensor input, target;                      ///< Afterwards.
  std::array<mlp::Passes, 2> passes;                ///< Of each copy.
  bool shares_memory = false;                       ///< A weight of both copies is one.
  bool records = true;                              ///< Autograd still records.
};

/// A call, as it should be.
struct Step {
  std::string name;  ///< `step 3, 7 samples`
  mlp::Shape shape;
  double lr = 0;
  torch::Tensor input, target;
  std::optional<torch::Tensor> last = {};  ///< The gradient that the copies moved by in the step before.

  int64_t samples() const { return input.size(0); }
  /// The samples of the first copy.
  int64_t half() const { return (samples() + 1) / 2; }
};

/// Judges one call. Returns the gradient that the copies moved by.
torch::Tensor judge(Checker& checker, const Step& step, const Seen& seen);

}  // namespace lab::manual
