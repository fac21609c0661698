#include "launch/number.h"

#include <fmt/format.h>

#include <charconv>

#include "lockstep/error.h"

namespace lockstep::launch {

int parse_number(std::string_view origin, std::string_view text, int low, int high) {
  const bool negative = text.starts_with('-');
  const std::string_view digits = text.substr(negative ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    throw UsageError(fmt::format("{}: '{}' is not a whole number", origin, text));
  }
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (negative || error != std::errc() || value < low || value > high) {
    throw UsageError(fmt::format("{}: {} is not between {} and {}", origin, text, low, high));
  }
  return value;
}

}  // namespace lockstep::launch
