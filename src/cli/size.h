#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::cli {

/// Reads a number of bytes: `4096`, `64KiB`, `1GiB`, `100MB` (powers of 1000 without the i). Throws
/// UsageError naming `origin` and the text.
int64_t parse_bytes(std::string_view origin, std::string_view text);

/// `1.00 GiB`, for people.
std::string bytes_text(int64_t bytes);

}  // namespace lockstep::cli
