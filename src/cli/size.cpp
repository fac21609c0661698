#include "cli/size.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <limits>

#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

struct Unit {
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"KiB", int64_t{1} << 10},
                                          {"MiB", int64_t{1} << 20},
                                          {"GiB", int64_t{1} << 30},
                                          {"TiB", int64_t{1} << 40},
                                          {"KB", 1000},
                                          {"MB", 1'000'000},
                                          {"GB", 1'000'000'000},
                                          {"TB", 1'000'000'000'000}}};

}  // namespace

int64_t parse_bytes(std::string_view origin, std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  for (const auto& unit : kUnits) {
    if (error != std::errc() || rest != unit.name || number < 0) continue;
    if (number > std::numeric_limits<int64_t>::max() / unit.bytes) break;
    return number * unit.bytes;
  }
  throw UsageError(
      fmt::format("{} '{}': not a number of bytes; hint: like 4096, 64KiB or 1GiB", origin, text));
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  for (const auto& unit : {kUnits[5], kUnits[4], kUnits[3], kUnits[2]}) {
    if (bytes >= unit.bytes) {
      return fmt::format("{:.2f} {}", static_cast<double>(bytes) / static_cast<double>(unit.bytes),
                         unit.name);
    }
  }
  return "";
}

void say_if_large(std::string_view verb, const std::filesystem::path& data) {
  namespace fs = std::filesystem;
  constexpr uintmax_t kLargeBytes = uintmax_t{32} << 20;
  std::error_code error;
  uintmax_t bytes = fs::is_regular_file(data, error) ? fs::file_size(data, error) : 0;
  if (fs::is_directory(data, error)) {
    for (fs::recursive_directory_iterator at(data, error), end; !error && at != end; at.increment(error)) {
      if (at->is_regular_file(error)) bytes += at->file_size(error);
    }
  }
  if (error || bytes < kLargeBytes) return;
  const std::string text =
      fmt::format("lockstep {}: reading {} ({}): making tokens of it takes a while, here and on every rank\n",
                  verb, data.string(), bytes_text(static_cast<int64_t>(bytes)));
  std::fputs(text.c_str(), stderr);
}

}  // namespace lockstep::cli
