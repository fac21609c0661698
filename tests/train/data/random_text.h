#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <string_view>

namespace lockstep::test {

using Random = std::mt19937_64;

inline std::string utf8(char32_t value) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((value >> shift) & 0x3f)); };
  if (value < 0x80) return {static_cast<char>(value)};
  if (value < 0x800) return {static_cast<char>(0xc0 | (value >> 6)), tail(0)};
  if (value < 0x10000) return {static_cast<char>(0xe0 | (value >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | (value >> 18)), tail(12), tail(6), tail(0)};
}

inline std::string random_utf8(Random& random, size_t characters) {
  constexpr char32_t kEnds[] = {0x80, 0x800, 0xd800, 0x110000};
  std::string text;
  while (characters > 0) {
    const char32_t value = static_cast<char32_t>(random()) % kEnds[random() % 4];
    if (value >= 0xd800 && value < 0xe000) continue;
    text += utf8(value);
    --characters;
  }
  return text;
}

/// Few letters and many spaces, so that pairs repeat, tie and overlap.
inline std::string random_words(Random& random, size_t size) {
  constexpr std::string_view kLetters = "aaaabbc  \n";
  std::string text;
  for (size_t i = 0; i < size; ++i) text += kLetters[random() % kLetters.size()];
  return text;
}

}  // namespace lockstep::test
