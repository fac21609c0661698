#include "lab/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::lab {

namespace {

/// Reads from left to right: sum = product {+- product}, product = value {*/ value}.
class Reader {
 public:
  Reader(std::string_view text, const std::map<std::string, double>& letters)
      : text_(text), letters_(letters) {}

  double whole() {
    const double value = sum();
    if (peek() != '\0') fail("the end");
    return value;
  }

 private:
  double sum() {
    double value = product();
    while (peek() == '+' || peek() == '-') value += take() == '+' ? product() : -product();
    return value;
  }

  double product() {
    double value = single();
    while (peek() == '*' || peek() == '/') value = take() == '*' ? value * single() : value / single();
    return value;
  }

  double single() {
    const char next = peek();
    if (next == '(') return bracketed();
    if (next == '-') {
      take();
      return -single();
    }
    if (std::isdigit(static_cast<unsigned char>(next)) != 0) return number();
    if (std::isalpha(static_cast<unsigned char>(next)) != 0) return named();
    fail("a number, a letter or a bracket");
  }

  double bracketed() {
    take();
    const double value = sum();
    if (peek() != ')') fail("')'");
    take();
    return value;
  }

  double number() {
    size_t used = 0;
    const double value = std::stod(std::string(text_.substr(at_)), &used);
    at_ += used;
    return value;
  }

  double named() {
    const size_t begin = at_;
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    const std::string name(text_.substr(begin, at_ - begin));
    if (peek() == '(') return call(name, begin);
    const auto letter = letters_.find(name);
    if (letter == letters_.end()) {
      at_ = begin;
      fail("a letter that was drawn");
    }
    return letter->second;
  }

  double call(const std::string& name, size_t begin) {
    std::vector<double> given;
    do {
      take();
      given.push_back(sum());
    } while (peek() == ',');
    if (peek() != ')') fail("')'");
    take();
    if (given.size() == 1 && name == "ceil") return std::ceil(given[0]);
    if (given.size() == 1 && name == "floor") return std::floor(given[0]);
    if (given.size() == 1 && name == "log2") return std::log2(given[0]);
    if (given.size() == 2 && name == "min") return std::min(given[0], given[1]);
    if (given.size() == 2 && name == "max") return std::max(given[0], given[1]);
    if (given.size() == 2 && name == "pow") return std::pow(given[0], given[1]);
    at_ = begin;
    fail("ceil, floor, log2, min, max or pow");
  }

  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  char take() { return text_[at_++]; }

  [[noreturn]] void fail(std::string_view expected) const {
    throw Error(fmt::format("'{}': expected {} at character {}", text_, expected, at_ + 1));
  }

  std::string_view text_;
  const std::map<std::string, double>& letters_;
  size_t at_ = 0;
};

}  // namespace

double evaluate(std::string_view expression, const std::map<std::string, double>& letters) {
  return Reader(expression, letters).whole();
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

}  // namespace lockstep::lab
