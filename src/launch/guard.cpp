#include "launch/guard.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>

#include "launch/failure_report.h"
#include "launch/process_tree.h"
#include "launch/signals.h"

namespace lockstep::launch {

namespace {

void suspend_with(pid_t keeper) {
  kill(keeper, SIGTSTP);
  raise(SIGSTOP);
  kill(keeper, SIGCONT);
}

/// Passes signals on until the keeper has ended; returns its wait status.
int wait_for(pid_t keeper) {
  for (;;) {
    const int signal = sigwaitinfo(&launcher_signals(), nullptr);
    if (signal == SIGCHLD) {
      int status = 0;
      if (waitpid(keeper, &status, WNOHANG) == keeper) return status;
    } else if (signal == SIGTSTP) {
      suspend_with(keeper);
    } else if (signal > 0 && signal != SIGCONT) {
      kill(keeper, signal);
    }
  }
}

}  // namespace

const sigset_t& launcher_signals() {
  static const sigset_t signals = [] {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD}) {
      sigaddset(&set, signal);
    }
    return set;
  }();
  return signals;
}

int run_guarded(std::string_view who, const std::function<int(pid_t front)>& keep) {
  sigprocmask(SIG_BLOCK, &launcher_signals(), nullptr);
  signal(SIGPIPE, SIG_IGN);
  become_subreaper();
  std::fflush(nullptr);
  const pid_t front = getpid();
  const pid_t keeper = fork();
  if (keeper < 0) throw std::system_error(errno, std::generic_category(), "cannot start the keeper process");
  if (keeper == 0) {
    setsid();
    become_subreaper();
    return keep(front);
  }
  const int status = wait_for(keeper);
  kill_descendants(std::chrono::steady_clock::now() + std::chrono::seconds(10));
  if (WIFSIGNALED(status)) {
    fmt::print(stderr, "{}: the keeper process (pid {}) was {}; all that it had started was killed\n", who,
               keeper, describe_end(status));
  }
  return exit_code(status);
}

}  // namespace lockstep::launch
