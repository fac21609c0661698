#include "plan/least_squares.h"

#include <cmath>
#include <numeric>
#include <optional>

namespace lockstep::plan {

namespace {

using Column = std::vector<double>;

double dot(const Column& a, const Column& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// Takes `times` x `other` from `column`.
void subtract(Column& column, double times, const Column& other) {
  for (size_t i = 0; i < column.size(); ++i) column[i] -= times * other[i];
}

/// Least squares with the unknowns in `chosen` alone, of any sign; nothing if they cannot be told apart.
/// Gram-Schmidt: the columns differ by ten orders of magnitude, too much for normal equations.
std::optional<std::array<double, 3>> least_squares(const std::vector<Equation>& equations,
                                                   const std::vector<size_t>& chosen) {
  constexpr double kDependent = 1e-9;  // of a column's length that is left without the columns before it
  const size_t n = chosen.size();
  std::vector<Column> axes(n);
  std::array<std::array<double, 3>, 3> along = {};  // column k = sum over j <= k of along[j][k] axes[j]
  Column rest;
  for (const auto& equation : equations) {
    rest.push_back(equation.value);
    for (size_t k = 0; k < n; ++k) axes[k].push_back(equation.factors[chosen[k]]);
  }
  std::array<double, 3> share = {};  // of each axis in the values
  for (size_t k = 0; k < n; ++k) {
    const double length = std::sqrt(dot(axes[k], axes[k]));
    for (size_t j = 0; j < k; ++j) {
      along[j][k] = dot(axes[j], axes[k]);
      subtract(axes[k], along[j][k], axes[j]);
    }
    along[k][k] = std::sqrt(dot(axes[k], axes[k]));
    if (!(along[k][k] > kDependent * length)) return std::nullopt;
    for (double& value : axes[k]) value /= along[k][k];
    share[k] = dot(axes[k], rest);
    subtract(rest, share[k], axes[k]);
  }
  std::array<double, 3> found = {};
  for (size_t k = n; k-- > 0;) {
    double value = share[k];
    for (size_t j = k + 1; j < n; ++j) value -= along[k][j] * found[chosen[j]];
    found[chosen[k]] = value / along[k][k];
  }
  return found;
}

}  // namespace

double squared_error(const std::vector<Equation>& equations, const std::array<double, 3>& unknowns) {
  double sum = 0;
  for (const auto& [factors, value] : equations) {
    const double difference =
        std::inner_product(factors.begin(), factors.end(), unknowns.begin(), 0.0) - value;
    sum += difference * difference;
  }
  return sum;
}

std::array<double, 3> non_negative_least_squares(const std::vector<Equation>& equations) {
  // The answer is plain least squares in the unknowns that it does not hold at zero, and with three unknowns
  // there are only eight ways to hold some: no search is needed.
  static const std::vector<std::vector<size_t>> choices = {{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}};
  std::array<double, 3> best = {};
  double best_error = squared_error(equations, best);
  const double rounding = 1e-12 * best_error;
  for (const auto& chosen : choices) {
    const auto found = least_squares(equations, chosen);
    if (!found || (*found)[0] < 0 || (*found)[1] < 0 || (*found)[2] < 0) continue;
    const double error = squared_error(equations, *found);
    if (error < best_error - rounding) {
      best = *found;
      best_error = error;
    }
  }
  return best;
}

}  // namespace lockstep::plan
