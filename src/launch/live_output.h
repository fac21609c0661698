#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// Writes lines to standard output and standard error without ever blocking the launcher: what a reader does
/// not take is queued, and a full queue asks the ranks to wait (their pipes are not read). Lines keep their
/// order, but those for one descriptor do not wait for the reader of the other.
class LiveOutput {
 public:
  LiveOutput();

  /// Appends whole lines for `fd`. Lines for a reader that has gone are dropped.
  void add(int fd, std::string_view lines);
  /// Writes what can be written now; returns whether that was anything.
  bool flush();
  /// Forgets what is queued.
  void drop();

  bool empty() const { return queued_bytes_ == 0; }
  bool full() const { return queued_bytes_ > kFullBytes; }
  /// Whether a line for `fd` is the next that waits for a reader.
  bool waits_for(int fd) const;
  /// Why `fd` took no more, as errno; 0 unless output was lost, which it is not if the reader left or `fd`
  /// was closed from the start.
  int lost(int fd) const { return lost_[fd]; }
  /// How many bytes are queued for `fd`.
  size_t bytes_for(int fd) const;

 private:
  struct Piece {
    uint64_t number;  ///< Smaller is older.
    int fd;
    std::string text;
    size_t written = 0;
  };
  /// What waits for one reader, in order.
  struct Queue {
    std::deque<Piece> pieces;
    bool blocked = false;
  };
  static constexpr size_t kFullBytes = 1 << 20;

  Queue& queue_of(int fd) { return queues_[fd == 1 || same_ ? 0 : 1]; }
  Queue* oldest();
  void take_front(Queue& queue);

  std::array<Queue, 2> queues_;  ///< For standard output and standard error.
  bool same_ = false;            ///< Both are one file, such as a terminal: all lines are in the first queue.
  uint64_t added_ = 0;
  size_t queued_bytes_ = 0;
  bool gone_[3] = {};  ///< By descriptor: nothing can be written any more.
  int lost_[3] = {};
};

}  // namespace lockstep::launch
