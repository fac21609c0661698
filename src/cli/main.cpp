#include <array>
#include <csignal>

#include "cli/command_line.h"

namespace {

constexpr std::array kMayBeIgnored = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
std::array<bool, kMayBeIgnored.size()> g_was_ignored;  // no constructor: it is filled before constructors run

void note_ignored_signals() {
  for (size_t i = 0; i < kMayBeIgnored.size(); ++i) {
    struct sigaction action {};
    sigaction(kMayBeIgnored[i], nullptr, &action);
    g_was_ignored[i] = action.sa_handler == SIG_IGN;
  }
}

// A library may take a signal for itself as it is loaded: UCX, which Open MPI 5 brings along, takes SIGHUP.
// What the user's shell has ignored for us (nohup) is noted before that, and ignored again afterwards.
[[gnu::section(".preinit_array"), gnu::used]] void (*const g_before_libraries)() = note_ignored_signals;

void ignore_them_again() {
  for (size_t i = 0; i < kMayBeIgnored.size(); ++i) {
    if (g_was_ignored[i]) std::signal(kMayBeIgnored[i], SIG_IGN);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ignore_them_again();
  return lockstep::cli::run_command_line({argv + 1, argv + argc});
}
