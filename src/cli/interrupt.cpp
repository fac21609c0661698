#include "cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace lockstep::cli {

namespace {

std::atomic<bool> noted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not take a lock");

}  // namespace

InterruptGuard::InterruptGuard() {
  noted = false;
  struct sigaction previous {};
  sigaction(SIGINT, nullptr, &previous);
  if (previous.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = [](int) { noted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  struct sigaction previous {};
  sigaction(SIGINT, nullptr, &previous);
  if (previous.sa_handler != SIG_IGN) std::signal(SIGINT, SIG_DFL);
}

bool InterruptGuard::interrupted() {
  return noted;
}

launch::Captured capture_until_interrupted(const std::vector<std::string>& command,
                                           const launch::Environment& environment,
                                           std::chrono::milliseconds limit) {
  auto run = launch::capture(command, environment, limit, InterruptGuard::interrupted);
  stop_if_interrupted();
  return run;
}

}  // namespace lockstep::cli
