#include "train/data/utf8.h"

#include <fmt/format.h>

namespace lockstep::train {

namespace {

/// What the first byte tells: how long the form is, its own bits, and the smallest value of that length.
struct Form {
  size_t bytes;
  char32_t bits;
  char32_t smallest;
};

std::optional<Form> form_of(unsigned char first) {
  if (first < 0x80) return Form{1, first, 0};
  if (first >= 0xc0 && first < 0xe0) return Form{2, first & 0x1fU, 0x80};
  if (first >= 0xe0 && first < 0xf0) return Form{3, first & 0x0fU, 0x800};
  if (first >= 0xf0 && first < 0xf8) return Form{4, first & 0x07U, 0x10000};
  return std::nullopt;
}

}  // namespace

std::optional<CodePoint> code_point_at(std::string_view text, size_t position) {
  const auto form = form_of(static_cast<unsigned char>(text[position]));
  if (!form || form->bytes > text.size() - position) return std::nullopt;
  char32_t value = form->bits;
  for (size_t i = 1; i < form->bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[position + i]);
    if ((byte & 0xc0U) != 0x80U) return std::nullopt;
    value = (value << 6U) | (byte & 0x3fU);
  }
  const bool is_surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < form->smallest || is_surrogate || value > 0x10ffff) return std::nullopt;
  return CodePoint{value, form->bytes};
}

std::optional<size_t> first_invalid_byte(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    const auto code_point = code_point_at(text, position);
    if (!code_point) return position;
    position += code_point->bytes;
  }
  return std::nullopt;
}

std::string shown(std::string_view text, size_t position, CodePoint code_point) {
  const auto number = static_cast<uint32_t>(code_point.value);
  const bool is_control = number < 0x20 || (number >= 0x7f && number < 0xa0);
  if (is_control) return fmt::format("U+{:04X}", number);
  return fmt::format("U+{:04X} '{}'", number, text.substr(position, code_point.bytes));
}

}  // namespace lockstep::train
