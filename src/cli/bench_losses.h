#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// What one system's training gave, as means over its ranks.
struct SystemLosses {
  std::string system;
  double first = 0;
  double last = 0;
};

/// How far losses of systems that sum in different orders may be apart, relative to each other.
constexpr double kLossTolerance = 1e-3;

/// Throws Error, naming what was measured, system, found and expected, unless all losses are finite and every
/// system's are those of the first.
void require_equal_losses(const std::string& what, const std::vector<SystemLosses>& systems,
                          double tolerance = kLossTolerance);

/// Whether two losses agree. What is not finite agrees with nothing.
bool losses_agree(double a, double b, double tolerance);

}  // namespace lockstep::cli
