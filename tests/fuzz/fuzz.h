#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

// What libFuzzer calls with each input, and replay.cpp with each file of a corpus. An exception that escapes
// is a find, too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace lockstep::fuzz {

/// Ends the process, so that libFuzzer keeps the input, unless `holds`.
inline void require(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", claim);
  std::abort();
}

/// A refusal is for people: a few lines of text, whatever the input was.
inline void require_readable(const std::exception& refusal) {
  const std::string_view text = refusal.what();
  require(!text.empty() && text.size() < 2000, "a refusal has a text of less than 2000 bytes");
  for (const char c : text)
    require(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f),
            "a refusal has no control characters");
}

}  // namespace lockstep::fuzz
