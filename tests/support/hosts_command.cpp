// tools/hosts: runs a command once on each of several hosts (network namespaces), and leaves nothing behind.
#include <fcntl.h>
#include <fmt/format.h>
#include <getopt.h>
#include <poll.h>
#include <sodium.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>

#include "launch/failure_report.h"
#include "launch/guard.h"
#include "launch/number.h"
#include "launch/process_tree.h"
#include "launch/signals.h"
#include "lockstep/error.h"
#include "support/hosts.h"

namespace {

using lockstep::UsageError;
using lockstep::launch::UniqueFd;
using lockstep::test::Hosts;
using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    "Usage: tools/hosts [--hosts N] [--rate RATE] [--burst SIZE] [--latency TIME] [--] COMMAND...\n"
    "\n"
    "Runs COMMAND once on each of N hosts (default 2): network namespaces joined by a switch, 10.77.0.1 to "
    ".N.\n"
    "RATE shapes every link in both directions, as tc writes it (1gbit, 100mbit); SIZE (default 128kb) may "
    "pass\n"
    "at once, and a packet that would wait longer than TIME (default 50ms) is lost.\n"
    "\n"
    "COMMAND finds NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT and, unless it is set already, LOCKSTEP_TOKEN "
    "in its\n"
    "environment, which is what `lockstep run` reads. When it fails on one host it is ended on the others.\n"
    "\n"
    "Exit code: 0, or that of the first host that failed; 2 for bad usage.\n"
    "Example: tools/hosts --rate 1gbit -- ./lockstep run --nproc-per-node 1 --engine gloo PROGRAM\n";

constexpr auto kGrace = std::chrono::seconds(10);

struct Request {
  Hosts::Options hosts;
  char** command = nullptr;
};

Request parse(int argc, char** argv) {
  Request request;
  const option options[] = {
      {"hosts", required_argument, nullptr, 'n'}, {"rate", required_argument, nullptr, 'r'},
      {"burst", required_argument, nullptr, 'b'}, {"latency", required_argument, nullptr, 'l'},
      {"help", no_argument, nullptr, 'h'},        {}};
  opterr = 0;
  for (int found = 0; (found = getopt_long(argc, argv, "+h", options, nullptr)) != -1;) {
    if (found == 'n') request.hosts.count = lockstep::launch::parse_number("--hosts", optarg, 1, 200);
    if (found == 'r') request.hosts.rate = optarg;
    if (found == 'b') request.hosts.burst = optarg;
    if (found == 'l') request.hosts.latency = optarg;
    if (found == 'h') return {};
    if (found == '?')
      throw UsageError(fmt::format("{}: no such flag, or its value is missing", argv[optind - 1]));
  }
  if (optind >= argc) throw UsageError("no command is given");
  request.command = argv + optind;
  return request;
}

/// Between fork and exec.
[[noreturn]] void become_command(const Hosts& hosts, int host, pid_t keeper, char** command) {
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  try {
    hosts.enter(host);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tools/hosts: {}\n", error.what());
    _exit(1);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != keeper) _exit(1);
  setenv("NODE_RANK", std::to_string(host).c_str(), 1);
  dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  execvp(command[0], command);
  fmt::print(stderr, "tools/hosts: cannot execute {}: {}\n", command[0], std::strerror(errno));
  _exit(127);
}

/// The command on all hosts, until it has ended on all of them.
class Run {
 public:
  Run(const Request& request, pid_t front)
      : hosts_(request.hosts),
        front_(static_cast<int>(syscall(SYS_pidfd_open, front, 0))),
        signals_(signalfd(-1, &lockstep::launch::launcher_signals(), SFD_CLOEXEC | SFD_NONBLOCK)) {
    if (!front_ || !signals_) return;  // the front is gone: nothing is started
    for (int host = 0; host < hosts_.count(); ++host) {
      const pid_t keeper = getpid();
      const pid_t pid = fork();
      if (pid == 0) become_command(hosts_, host, keeper, request.command);
      if (pid < 0) {
        exit_code_ = 1;
        end(SIGKILL);
        break;
      }
      setpgid(pid, pid);  // here too: whoever is first, the group is there when it gets a signal
      running_.insert(pid);
    }
  }

  int wait() {
    while (!running_.empty() && Clock::now() < kill_at_) {
      pollfd watched[] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                          {.fd = front_.get(), .events = POLLIN, .revents = 0}};
      poll(watched, 2, is_ending() ? 100 : -1);
      if (watched[1].revents != 0) break;
      take_signals();
      reap();
    }
    lockstep::launch::kill_descendants(Clock::now() + kGrace);
    return exit_code_;
  }

 private:
  bool is_ending() const { return kill_at_ != Clock::time_point::max(); }

  /// Asks the command to end; what is left after a while, wait() kills.
  void end(int signal) {
    if (!is_ending()) kill_at_ = Clock::now() + kGrace;
    for (const pid_t pid : running_) kill(-pid, signal);
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) continue;
      if (is_ending()) kill_at_ = Clock::now();  // asked twice: no more patience
      if (exit_code_ == 0) exit_code_ = 128 + signal;
      end(signal);
    }
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (running_.erase(pid) == 0) continue;  // an orphan of the command
      const int code = lockstep::launch::exit_code(status);
      if (code == 0) continue;
      if (exit_code_ == 0) exit_code_ = code;
      if (!is_ending()) end(SIGTERM);
    }
  }

  const Hosts hosts_;
  const UniqueFd front_;
  const UniqueFd signals_;
  std::set<pid_t> running_;
  Clock::time_point kill_at_ = Clock::time_point::max();
  int exit_code_ = 0;
};

void set_environment(const Request& request) {
  setenv("NNODES", std::to_string(request.hosts.count).c_str(), 1);
  setenv("MASTER_ADDR", Hosts::address(0).c_str(), 1);
  setenv("MASTER_PORT", "29500", 1);  // nobody else is on this network
  unsigned char token[16];
  char text[2 * sizeof token + 1];
  randombytes_buf(token, sizeof token);
  setenv("LOCKSTEP_TOKEN", sodium_bin2hex(text, sizeof text, token, sizeof token), 0);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Request request = parse(argc, argv);
    if (request.command == nullptr) {
      fmt::print("{}", kUsage);
      return 0;
    }
    set_environment(request);
    return lockstep::launch::run_guarded("tools/hosts",
                                         [&](pid_t front) { return Run(request, front).wait(); });
  } catch (const UsageError& error) {
    fmt::print(stderr, "tools/hosts: {}; hint: tools/hosts --help\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tools/hosts: {}\n", error.what());
    return 1;
  }
}
