#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// Writes lines to standard output and standard error without ever blocking the launcher: what the reader
/// does not take is queued, in order, and a full queue asks the ranks to wait (their pipes are not read).
class LiveOutput {
 public:
  /// Appends whole lines for `fd`. Lines for a reader that has gone are dropped.
  void add(int fd, std::string_view lines);
  /// Writes what can be written now.
  void flush();
  /// Forgets what is queued.
  void drop() { queue_.clear(), queued_bytes_ = 0; }

  bool empty() const { return queue_.empty(); }
  bool full() const { return queued_bytes_ > kFullBytes; }
  /// The descriptor that the first queued line waits for, or -1.
  int waiting_for() const { return queue_.empty() ? -1 : queue_.front().fd; }

 private:
  struct Piece {
    int fd;
    std::string text;
    size_t written = 0;
  };
  static constexpr size_t kFullBytes = 1 << 20;

  void take_front();

  std::deque<Piece> queue_;
  size_t queued_bytes_ = 0;
  bool gone_[3] = {};  ///< By descriptor: the reader closed its end.
};

}  // namespace lockstep::launch
