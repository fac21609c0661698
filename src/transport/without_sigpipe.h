#pragma once

#include <pthread.h>
#include <signal.h>

namespace lockstep::transport {

/// While it lives, a write to a closed connection is an error of this thread's call and not the end of the
/// process: for libraries that write without MSG_NOSIGNAL. What the program does with SIGPIPE stays as it is.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    was_pending_ = is_pending();
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~WithoutSigpipe() {
    // One that came meanwhile is taken back before it can be delivered.
    constexpr timespec kAtOnce = {};
    if (!was_pending_ && is_pending()) sigtimedwait(&sigpipe_, nullptr, &kAtOnce);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  static bool is_pending() {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) == 1;
  }

  sigset_t sigpipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace lockstep::transport
