#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::cli {

/// Reads a number of bytes: `4096`, `64KiB`, `1GiB`, `100MB` (powers of 1000 without the i). Throws
/// UsageError naming `origin` and the text.
int64_t parse_bytes(std::string_view origin, std::string_view text);

/// `1.00 GiB`, for people.
std::string bytes_text(int64_t bytes);

/// Says on standard error that `data`, a file or folder, is being read, if it is so large that this takes
/// long.
void say_if_large(std::string_view verb, const std::filesystem::path& data);

}  // namespace lockstep::cli
