#include "launch/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "lockstep/error.h"

namespace lockstep::launch {

namespace {

using Clock = std::chrono::steady_clock;

class OutputPipe {
 public:
  OutputPipe() {
    if (pipe2(ends_, O_CLOEXEC) != 0 || fcntl(ends_[0], F_SETFL, O_NONBLOCK) != 0)
      throw Error(std::string("pipe: ") + std::strerror(errno));
  }
  OutputPipe(const OutputPipe&) = delete;
  OutputPipe& operator=(const OutputPipe&) = delete;
  ~OutputPipe() {
    close_end(0);
    close_end(1);
  }

  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_end(int end) {
    if (ends_[end] >= 0) close(ends_[end]);
    ends_[end] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

/// posix_spawn's settings: own process group, no blocked or ignored signals, the pipes as output.
class SpawnSettings {
 public:
  SpawnSettings(int output, int errors) {
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, errors, STDERR_FILENO);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&actions_);
  }

  int spawn(pid_t& pid, std::vector<std::string> command, const Environment& environment) const {
    std::vector<std::string> settings;
    for (const auto& [name, value] : environment) settings.push_back(name + "=" + value);
    return posix_spawnp(&pid, command[0].c_str(), &actions_, &attributes_, pointers(command).data(),
                        pointers(settings).data());
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> found;
    for (auto& text : texts) found.push_back(text.data());
    found.push_back(nullptr);
    return found;
  }

  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t actions_;
};

/// While one lives, signals that would end this process wait, so that what it started can be ended first;
/// then they do what they would have done.
class StopSignals {
 public:
  StopSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&signals, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
    fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals() {
    if (fd_ >= 0) close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  int fd() const { return fd_; }  ///< Readable when one has come; it is not read.

 private:
  sigset_t before_;
  int fd_ = -1;
};

/// Appends what is there to read without waiting; false at the end of the file.
bool read_some(int fd, std::string& text) {
  char bytes[4096];
  const ssize_t count = read(fd, bytes, sizeof bytes);
  if (count > 0) text.append(bytes, static_cast<size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

struct Watched {
  pid_t pid;
  int pidfd;  ///< -1 where the kernel has none: it has ended when both pipes have.
  int output, errors;
  int stop_signals;
};

/// Reads both pipes until the process has ended; false when `deadline` came first. A signal to stop is passed
/// on as SIGTERM, and brings the deadline near.
bool read_until_end(const Watched& watched, Captured& result, Clock::time_point deadline,
                    const std::function<void(const std::string&)>& watch) {
  constexpr std::chrono::seconds kGrace(2);
  const int pidfd = watched.pidfd;
  pollfd polled[4] = {{watched.output, POLLIN, 0},
                      {watched.errors, POLLIN, 0},
                      {pidfd, POLLIN, 0},
                      {watched.stop_signals, POLLIN, 0}};
  std::string* const texts[2] = {&result.output, &result.errors};
  bool ended = false;
  while (!ended && (pidfd >= 0 || polled[0].fd >= 0 || polled[1].fd >= 0)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    if (poll(polled, 4, static_cast<int>(left)) < 0) continue;
    ended = polled[2].revents != 0;
    if (polled[3].revents != 0) {
      polled[3].fd = -1;
      kill(-watched.pid, SIGTERM);
      deadline = std::min(deadline, Clock::now() + kGrace);
    }
    for (int i = 0; i < 2; ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      const size_t before = texts[i]->size();
      if (!read_some(polled[i].fd, *texts[i])) polled[i].fd = -1;  // poll skips it from now on
      if (i == 0 && watch && texts[i]->size() > before) watch(*texts[i]);
    }
  }
  for (int i = 0; i < 2; ++i) {
    size_t before = 0;
    do before = texts[i]->size();
    while (polled[i].fd >= 0 && read_some(polled[i].fd, *texts[i]) && texts[i]->size() > before);
  }
  return true;
}

}  // namespace

Captured capture(const std::vector<std::string>& command, const Environment& environment,
                 std::chrono::milliseconds limit, bool (*stopped)(),
                 const std::function<void(const std::string& output)>& watch) {
  Captured result;
  const StopSignals stop_signals;
  if (stopped != nullptr && stopped()) return result;
  OutputPipe output;
  OutputPipe errors;
  pid_t pid = -1;
  const int failure = SpawnSettings(output.writer(), errors.writer()).spawn(pid, command, environment);
  if (failure != 0) {
    result.errors = std::strerror(failure);
    return result;
  }
  result.started = true;
  output.close_end(1);
  errors.close_end(1);
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  result.timed_out = !read_until_end({.pid = pid,
                                      .pidfd = pidfd,
                                      .output = output.reader(),
                                      .errors = errors.reader(),
                                      .stop_signals = stop_signals.fd()},
                                     result, Clock::now() + limit, watch);
  if (pidfd >= 0) close(pidfd);
  kill(-pid,
       SIGKILL);  // also what it may have left behind; before the wait, while the number is still its own
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace lockstep::launch
