#include "cli/interrupt.h"

#include <array>
#include <atomic>
#include <csignal>

namespace lockstep::cli {

namespace {

constexpr std::array kInterrupts = {SIGINT, SIGTERM, SIGHUP};

std::atomic<int> noted = 0;  // the signal that came first
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not take a lock");

void note(int signal) {
  int none = 0;
  noted.compare_exchange_strong(none, signal);
}

/// Unless it is ignored.
void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  noted = 0;
  for (const int signal : kInterrupts) handle(signal, note);
}

InterruptGuard::~InterruptGuard() {
  for (const int signal : kInterrupts) handle(signal, SIG_DFL);
}

bool InterruptGuard::interrupted() {
  return noted != 0;
}

int InterruptGuard::exit_code() {
  return 128 + noted;
}

launch::Captured capture_until_interrupted(const std::vector<std::string>& command,
                                           const launch::Environment& environment,
                                           std::chrono::milliseconds limit) {
  auto run = launch::capture(command, environment, limit, InterruptGuard::interrupted);
  stop_if_interrupted();
  return run;
}

}  // namespace lockstep::cli
