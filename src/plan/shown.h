#pragma once

#include <string>
#include <string_view>

namespace lockstep::plan {

/// A piece of a file as an error may show it: at most 40 characters, unprintable ones as `?`.
inline std::string shown(std::string_view text) {
  constexpr size_t kMost = 40;
  std::string result;
  for (const char letter : text.substr(0, kMost)) result += letter >= ' ' && letter <= '~' ? letter : '?';
  return text.size() > kMost ? result + "..." : result;
}

/// Whether a word may be an algorithm's name: letters, digits, `-`, `_` and `.`, at most 64.
inline bool is_plain_word(std::string_view word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  constexpr size_t kMost = 64;
  return !word.empty() && word.size() <= kMost && word.find_first_not_of(kPlain) == std::string_view::npos;
}

}  // namespace lockstep::plan
