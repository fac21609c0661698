#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>

namespace lockstep::cli {

namespace {

constexpr double kRedrawSeconds = 0.1;

size_t window_width(std::FILE* stream) {
  winsize size{};
  const bool known = ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::clamp(seconds, 0.0, 359'999.0)));
  const auto hours = whole / 3600;
  const auto minutes = whole / 60 % 60;
  if (hours == 0) return fmt::format("{}:{:02}", minutes, whole % 60);
  return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
}

Progress::Progress(std::FILE* stream, int64_t total, bool rewrite, int64_t before)
    : stream_(stream), total_(total), rewrite_(rewrite), before_(before) {}

void Progress::update(int64_t done, double seconds, const std::string& text) {
  if (rewrite_) {
    if (drawn_ && seconds - drawn_at_ < kRedrawSeconds) return;
    drawn_at_ = seconds;
  } else if (done != total_ && done % ((total_ + 9) / 10) != 0) {
    return;
  }
  const int width = static_cast<int>(std::to_string(total_).size());
  std::string line = fmt::format("step {:>{}}/{}  {}", done, width, total_, text);
  if (!rewrite_) {
    fmt::print(stream_, "{}\n", line);
  } else {
    line += fmt::format("  ETA {}", clock_text(seconds / static_cast<double>(done - before_) *
                                               static_cast<double>(total_ - done)));
    fmt::print(stream_, "\r{}\x1b[K", line.substr(0, window_width(stream_) - 1));
    drawn_ = true;
  }
  std::fflush(stream_);
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print(stream_, "\r\x1b[K");
  std::fflush(stream_);
  drawn_ = false;
}

}  // namespace lockstep::cli
