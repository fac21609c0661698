#pragma once

#include <cstdint>
#include <vector>

#include "parallel/ddp/replica.h"

namespace lockstep::ddp {

/// Notices an optimizer that was given a tied parameter twice, as `Module::parameters()` lists it, and so
/// steps it twice. Between a backward and the next forward such a parameter changes twice as often as the
/// others do; where an optimizer hides its changes from autograd (LibTorch's SGD), it moves twice as far
/// along its gradient. Looks at the first step that changes anything; what it cannot tell for sure it lets
/// pass.
class TiedStepCheck {
 public:
  /// After a backward: what is seen from now on is the optimizer's.
  void remember(const std::vector<NamedParameter>& parameters);
  /// Before a forward. Throws UsageError, naming the parameter.
  void check(const std::vector<NamedParameter>& parameters);

 private:
  /// A parameter as it was after backward.
  struct Seen {
    int64_t version = 0;
    int64_t element = 0;  ///< The one with the steepest gradient.
    double value = 0;
    double slope = 0;  ///< 0: there was none.
  };
  static double element_of(const at::Tensor& tensor, int64_t element);

  bool is_done_ = false;
  std::vector<Seen> seen_;  ///< Empty: nothing to compare with.
};

}  // namespace lockstep::ddp
