#include "cli/sample.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::cli {

double Sample::median() const {
  if (values_.empty()) throw Error("the median of nothing");
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Sample::low() const {
  return *std::min_element(values_.begin(), values_.end());
}

double Sample::high() const {
  return *std::max_element(values_.begin(), values_.end());
}

std::string Sample::text() const {
  if (empty()) return "-";
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", median(), low(), high());
}

}  // namespace lockstep::cli
