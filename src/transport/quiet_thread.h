#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace lockstep::transport {

/// Starts a thread that takes no signals: they are for the threads of the program.
template <typename Body>
std::thread start_quiet_thread(const char* name, Body&& body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } const restore{before};
  std::thread thread(std::forward<Body>(body));
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace lockstep::transport
