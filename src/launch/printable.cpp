#include "launch/printable.h"

#include <fmt/format.h>

namespace lockstep::launch {

std::string printable(std::string_view text, std::size_t limit) {
  std::string shown;
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  if (text.size() > limit) shown += "...";
  return shown;
}

}  // namespace lockstep::launch
