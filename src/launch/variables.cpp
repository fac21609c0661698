#include "launch/variables.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/number.h"
#include "launch/printable.h"
#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kMaxTextLength = 1024;

bool fits_one_line(std::string_view text) {
  return !text.empty() && text.size() <= kMaxTextLength &&
         std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

}  // namespace

bool Variables::has(std::string_view name) const {
  return environment_.contains(std::string(name));
}

int Variables::number(std::string_view name, int low, int high) const {
  const std::string text = printable(value(name));
  try {
    return parse_number(name, text, low, high);
  } catch (const UsageError& error) {
    refuse(error.what());
  }
}

int Variables::number_or(std::string_view name, int low, int high, int absent) const {
  return has(name) ? number(name, low, high) : absent;
}

const std::string& Variables::text(std::string_view name) const {
  const std::string& text = value(name);
  if (!fits_one_line(text)) refuse(fmt::format("{}: '{}' is not one line of text", name, printable(text)));
  return text;
}

std::string Variables::shown(std::string_view name) const {
  return fmt::format("{}={}", name, printable(value(name)));
}

void Variables::refuse(std::string_view problem) const {
  throw UsageError(fmt::format("identity: {}; hint: {}", problem, hint_));
}

const std::string& Variables::value(std::string_view name) const {
  const auto found = environment_.find(std::string(name));
  if (found == environment_.end()) refuse(fmt::format("{} is not set, but {} is", name, shown(marker_)));
  return found->second;
}

}  // namespace lockstep::launch
