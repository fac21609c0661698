#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "launch/unique_fd.h"

namespace lockstep::test {

/// A function in a process of its own, which tells the test lines of text. Fork all of them before the test
/// starts a thread.
class Process {
 public:
  /// What the function tells lines by.
  using Say = std::function<void(const std::string&)>;

  explicit Process(const std::function<void(const Say&)>& body);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();  ///< Kills it.

  pid_t pid() const { return pid_; }
  void kill(int signal) const;
  /// The next line; "(ended)" if the process ended, "(nothing)" if none came for a long time.
  std::string line();
  /// Waits for its end: the exit code, 128 + signal for a signal. An exception of the body is a line, and 1.
  int wait();

 private:
  pid_t pid_ = -1;
  int status_ = -1;
  launch::UniqueFd pipe_;
  std::string buffer_;
};

}  // namespace lockstep::test
