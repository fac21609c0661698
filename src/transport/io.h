#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "launch/unique_fd.h"
#include "transport/control.h"

namespace lockstep::transport {

using Deadline = Control::Clock::time_point;

/// What poll() takes: milliseconds until `deadline`, rounded up; 0 if it is over.
int poll_ms(Deadline deadline);

/// Waits until `events` are on `fd`, or it is closed by the peer; false at the deadline.
bool wait_for(int fd, short events, Deadline deadline);

/// Waits between attempts, longer each time, at most 50 ms.
class Backoff {
 public:
  explicit Backoff(Deadline deadline) : deadline_(deadline) {}
  /// False, at once, if the deadline is over.
  bool wait();

 private:
  Deadline deadline_;
  int ms_ = 1;
};

enum class Delivery { kDone, kClosed, kTimeout };

/// Sends all of `bytes` on a socket. Never raises SIGPIPE.
Delivery send_all(int socket, std::string_view bytes, Deadline deadline);

/// Receives `size` bytes, and reads not one more.
Delivery receive_exactly(int socket, std::size_t size, std::string& bytes, Deadline deadline);

/// An eventfd: wake() makes it readable, from any thread.
class Waker {
 public:
  Waker();
  int fd() const { return fd_.get(); }
  void wake() const;
  void clear() const;

 private:
  launch::UniqueFd fd_;
};

/// "2.5 s", "60 s".
std::string seconds_text(Control::Clock::duration duration);

/// The text of errno `error`.
std::string error_text(int error);

}  // namespace lockstep::transport
