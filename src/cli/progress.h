#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::cli {

/// "0:07", "12:34" or "1:02:03".
std::string clock_text(double seconds);

/// Shows how far a run of `total` steps has come. On a terminal it is one line, rewritten at most ten times a
/// second and cut to the window's width; elsewhere it is a line of its own at every tenth of the way.
class Progress {
 public:
  /// `before`: steps done already, which took none of the time that is told.
  Progress(std::FILE* stream, int64_t total, bool rewrite, int64_t before = 0);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps took `seconds`; `text` is what the caller has to say about the last one.
  void update(int64_t done, double seconds, const std::string& text);

  /// Removes a rewritten line, so that other text can follow.
  void clear();

 private:
  std::FILE* stream_;
  int64_t total_;
  bool rewrite_;
  int64_t before_;
  bool drawn_ = false;
  double drawn_at_ = 0;
};

/// Names on `stream` work that takes longer than `after`: elsewhere than on a terminal by one line, there by
/// a line with the time so far, removed when the work is done. Its own thread writes, so that the work needs
/// no hooks.
class SlowWork {
 public:
  explicit SlowWork(std::string text);  ///< To stderr.
  SlowWork(std::FILE* stream, std::string text, bool rewrite, std::chrono::milliseconds after);
  ~SlowWork();
  SlowWork(const SlowWork&) = delete;
  SlowWork& operator=(const SlowWork&) = delete;

 private:
  void watch(std::FILE* stream, const std::string& text, bool rewrite, std::chrono::milliseconds after);

  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread watcher_;
};

}  // namespace lockstep::cli
