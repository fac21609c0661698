#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::train {

struct CodePoint {
  char32_t value;
  size_t bytes;  ///< How many bytes of UTF-8 it takes.
};

/// The code point that begins at byte `position` of `text`, which is not its end; nothing if these bytes are
/// no UTF-8: overlong forms, surrogates and values above U+10FFFF are none (RFC 3629).
std::optional<CodePoint> code_point_at(std::string_view text, size_t position);

/// The first byte (from 0) of `text` that begins no code point; nothing if all is UTF-8.
std::optional<size_t> first_invalid_byte(std::string_view text);

/// A code point as an error may show it: "U+00E9 'é'", or "U+0007" for a control character.
std::string shown(std::string_view text, size_t position, CodePoint code_point);

}  // namespace lockstep::train
