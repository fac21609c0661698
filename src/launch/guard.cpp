#include "launch/guard.h"

#include <fmt/format.h>
#include <sys/prctl.h>
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

bool is_ignored(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

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
    sigaddset(&set, SIGCHLD);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
      if (!is_ignored(signal)) sigaddset(&set, signal);  // nohup's promise; a blocked one would be read
    }
    return set;
  }();
  return signals;
}

int run_guarded(std::string_view who, const std::function<int(pid_t front)>& keep) {
  sigprocmask(SIG_BLOCK, &launcher_signals(), nullptr);
  signal(SIGCHLD, SIG_DFL);  // ignored, it would take the exit codes of our children away
  signal(SIGPIPE, SIG_IGN);
  become_subreaper();
  std::fflush(nullptr);
  const pid_t front = getpid();
  const pid_t keeper = fork();
  if (keeper < 0) throw std::system_error(errno, std::generic_category(), "cannot start the keeper process");
  if (keeper == 0) {
    // `pkill -KILL lockstep` must not end both at once: nobody would be left to end what the ranks have
    // started.
    prctl(PR_SET_NAME, "rank-keeper");
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
