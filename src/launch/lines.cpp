#include "launch/lines.h"

namespace lockstep::launch {

void LineSplitter::feed(std::string_view bytes, const TakeLine& take) {
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    rest_ += bytes.substr(0, newline);
    bytes.remove_prefix(newline == std::string_view::npos ? bytes.size() : newline + 1);
    if (newline == std::string_view::npos) {
      while (rest_.size() >= kLongest) {
        take(std::string_view(rest_).substr(0, kLongest));
        rest_.erase(0, kLongest);
      }
      return;
    }
    take(rest_);
    rest_.clear();
  }
}

void LineSplitter::finish(const TakeLine& take) {
  if (!rest_.empty()) take(rest_);
  rest_.clear();
}

std::string_view visible_part(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const auto rewrite = line.rfind('\r');
  return rewrite == std::string_view::npos ? line : line.substr(rewrite + 1);
}

std::string_view last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace lockstep::launch
