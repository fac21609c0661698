#pragma once

#include <array>
#include <vector>

namespace lockstep::plan {

/// factors[0] x0 + factors[1] x1 + factors[2] x2 should be `value`.
struct Equation {
  std::array<double, 3> factors = {};
  double value = 0;
};

/// The unknowns, none of them negative, with the least sum of squared differences. Of several such answers
/// the one with the fewest unknowns above zero, first unknowns first: what the equations cannot tell apart is
/// given to the first that explains it.
std::array<double, 3> non_negative_least_squares(const std::vector<Equation>& equations);

/// The sum of squared differences that `unknowns` leave.
double squared_error(const std::vector<Equation>& equations, const std::array<double, 3>& unknowns);

}  // namespace lockstep::plan
