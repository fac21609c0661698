#pragma once

#include <cstdint>
#include <vector>

#include "parallel/ddp/replica.h"

namespace lockstep::ddp {

/// Notices an optimizer that was given a tied parameter twice, as `Module::parameters()` lists it, and so
/// steps it twice: between a backward and the next forward it changes twice as often as the others do. Looks
/// at the first steps only.
class TiedStepCheck {
 public:
  /// After a backward: what is seen from now on is the optimizer's.
  void remember(const std::vector<NamedParameter>& parameters);
  /// Before a forward. Throws UsageError, naming the parameter.
  void check(const std::vector<NamedParameter>& parameters);

 private:
  static constexpr int kSteps = 3;
  std::vector<int64_t> versions_;  ///< Empty: nothing to compare with.
  int steps_ = 0;
};

}  // namespace lockstep::ddp
