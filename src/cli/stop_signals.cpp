#include "cli/stop_signals.h"

#include <signal.h>

#include <array>

namespace lockstep::cli {

namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1};

volatile sig_atomic_t g_seen = 0;
std::array<struct sigaction, kSignals.size()> g_before;

void take_note(int signal) {
  if (g_seen == SIGINT && signal == SIGINT) {
    ::signal(signal, SIG_DFL);
    raise(signal);
  }
  if (g_seen == 0) g_seen = signal;
}

}  // namespace

StopSignals::StopSignals() {
  g_seen = 0;
  struct sigaction action {};
  action.sa_handler = take_note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &g_before[i]);
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &g_before[i], nullptr);
}

int StopSignals::seen() {
  return g_seen;
}

}  // namespace lockstep::cli
