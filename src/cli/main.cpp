#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "cli/command_line.h"

namespace {

constexpr std::array kMayBeIgnored = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
std::array<bool, kMayBeIgnored.size()> g_was_ignored;  // no constructor: it is filled before constructors run

/// Whoever started us may have closed 0, 1 or 2: the next file to be opened would become our input or output.
/// Output that is closed stays an error for whoever writes it; nobody misses what is said on standard error.
void open_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // By number: sanitizers stand between us and these two functions, and are not ready this early.
    if (syscall(SYS_fcntl, fd, F_GETFD) >= 0) continue;
    syscall(SYS_openat, AT_FDCWD, "/dev/null", fd == STDERR_FILENO ? O_RDWR : O_RDONLY);
  }
}

void note_ignored_signals() {
  for (size_t i = 0; i < kMayBeIgnored.size(); ++i) {
    struct sigaction action {};
    sigaction(kMayBeIgnored[i], nullptr, &action);
    g_was_ignored[i] = action.sa_handler == SIG_IGN;
  }
}

// A library may take a signal for itself as it is loaded: UCX, which Open MPI 5 brings along, takes SIGHUP.
// What the user's shell has ignored for us (nohup) is noted before that, and ignored again afterwards.
void before_libraries() {
  open_standard_descriptors();
  note_ignored_signals();
}
// One pointer: AddressSanitizer pads arrays, and what is called here would be the padding.
[[gnu::section(".preinit_array"), gnu::used]] void (*const g_before_libraries)() = before_libraries;

void ignore_them_again() {
  for (size_t i = 0; i < kMayBeIgnored.size(); ++i) {
    if (g_was_ignored[i]) std::signal(kMayBeIgnored[i], SIG_IGN);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ignore_them_again();
  std::signal(SIGXFSZ, SIG_IGN);  // a write past `ulimit -f` is an error with a text, not the end
  return lockstep::cli::run_command_line({argv + 1, argv + argc});
}
