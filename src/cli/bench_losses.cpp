#include "cli/bench_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/error.h"

namespace lockstep::cli {

bool losses_agree(double a, double b, double tolerance) {
  if (!std::isfinite(a) || !std::isfinite(b)) return false;
  return std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}

void require_equal_losses(const std::string& what, const std::vector<SystemLosses>& systems,
                          double tolerance) {
  if (systems.empty()) return;
  const SystemLosses& expected = systems.front();
  for (const auto& found : systems) {
    for (const auto& [which, a, b] :
         {std::tuple("first", found.first, expected.first), std::tuple("last", found.last, expected.last)}) {
      if (losses_agree(a, b, tolerance)) continue;
      throw Error(fmt::format(
          "{}: the {} loss of {} is {:.9g}, that of {} {:.9g}, more than {} apart; no times are "
          "printed, since the systems did not do the same work; hint: losses that grow soon differ, "
          "by the order of sums; try a lower learning rate or a smaller model",
          what, which, found.system, a, expected.system, b, tolerance));
    }
  }
}

}  // namespace lockstep::cli
