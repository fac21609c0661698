#pragma once

#include <string_view>

namespace lockstep::launch {

/// Reads a whole number in [low, high], 0 <= low. Throws UsageError naming `origin` (a flag or a variable)
/// and the text unless it is just that: digits, nothing before or after them.
int parse_number(std::string_view origin, std::string_view text, int low, int high);

}  // namespace lockstep::launch
