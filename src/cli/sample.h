#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// What several rounds measured.
class Sample {
 public:
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
