#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli {

/// What several rounds measured.
class Sample {
 public:
  Sample() = default;
  explicit Sample(std::vector<double> values) : values_(std::move(values)) {}
  void add(double value) { values_.push_back(value); }
  bool empty() const { return values_.empty(); }
  double median() const;
  double low() const;
  double high() const;
  /// "1.23 (1.10 to 1.40)", or "-" if nothing was measured.
  std::string text() const;

 private:
  std::vector<double> values_;
};

}  // namespace lockstep::cli
