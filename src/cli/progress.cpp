#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/terminal.h"

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
    std::fputs((line + "\n").c_str(), stream_);  // fmt::print throws where the disk is full
  } else {
    line += fmt::format("  ETA {}", clock_text(seconds / static_cast<double>(done - before_) *
                                               static_cast<double>(total_ - done)));
    std::fputs(fmt::format("\r{}\x1b[K", line.substr(0, window_width(stream_) - 1)).c_str(), stream_);
    drawn_ = true;
  }
  std::fflush(stream_);
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stream_);
  std::fflush(stream_);
  drawn_ = false;
}

SlowWork::SlowWork(std::string text)
    : SlowWork(stderr, std::move(text), use_colour(STDERR_FILENO), std::chrono::milliseconds(1500)) {}

SlowWork::SlowWork(std::FILE* stream, std::string text, bool rewrite, std::chrono::milliseconds after)
    : watcher_(
          [this, stream, text = std::move(text), rewrite, after] { watch(stream, text, rewrite, after); }) {}

SlowWork::~SlowWork() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  watcher_.join();
}

void SlowWork::watch(std::FILE* stream, const std::string& text, bool rewrite,
                     std::chrono::milliseconds after) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return is_over_; };
  if (over_.wait_until(lock, begin + after, is_over)) return;
  if (!rewrite) {
    std::fputs((text + ": this takes a while\n").c_str(), stream);
    std::fflush(stream);
    return;
  }
  do {
    const double seconds = std::floor(std::chrono::duration<double>(Clock::now() - begin).count());
    const std::string line = fmt::format("{}  {}", text, clock_text(seconds));
    std::fputs(fmt::format("\r{}\x1b[K", line.substr(0, window_width(stream) - 1)).c_str(), stream);
    std::fflush(stream);
  } while (!over_.wait_for(lock, std::chrono::seconds(1), is_over));
  std::fputs("\r\x1b[K", stream);
  std::fflush(stream);
}

}  // namespace lockstep::cli
