#include "launch/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "lockstep/error.h"

namespace lockstep::launch {

namespace {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void restore_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
}

/// Everything between fork and exec: nothing here may allocate.
struct ChildPlan {
  pid_t parent;
  char* const* words;
  char* const* environment;
  cpu_set_t cpus;
  bool bind;
  int stdin_fd, stdout_fd, stderr_fd, error_fd;
  const rlimit* descriptors;
};

[[noreturn]] void become_program(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(1);  // the parent died before the line above
  if (plan.bind) sched_setaffinity(0, sizeof plan.cpus, &plan.cpus);
  dup2(plan.stdin_fd, STDIN_FILENO);
  dup2(plan.stdout_fd, STDOUT_FILENO);
  dup2(plan.stderr_fd, STDERR_FILENO);
  restore_signals();
  if (plan.descriptors != nullptr) setrlimit(RLIMIT_NOFILE, plan.descriptors);
  execve(plan.words[0], plan.words, plan.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(plan.error_fd, &error, sizeof error);
  _exit(127);
}

}  // namespace

rlimit reserve_descriptors(size_t ranks) {
  constexpr size_t kPerRank = 5;   // two logs, two pipes, a pidfd
  constexpr size_t kPassing = 32;  // the keeper's own, and what a start or a look at /proc opens for a moment
  const std::filesystem::directory_iterator open_files("/proc/self/fd");
  const auto open_now = static_cast<size_t>(std::distance(begin(open_files), end(open_files)));
  const rlim_t needed = open_now + ranks * kPerRank + kPassing;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed) return limit;
  if (limit.rlim_max < needed) {
    throw UsageError(
        fmt::format("{0} ranks on this node need {1} open files, the limit is {2}; hint: ulimit -n {1} (as "
                    "root: it is the "
                    "hard limit), or fewer ranks",
                    ranks, needed, limit.rlim_max));
  }
  const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);  // up to the hard limit it cannot fail
  return limit;
}

RankProcess start_rank(const RankCommand& command) {
  std::vector<std::string> words = command.words;
  std::vector<std::string> settings;
  for (const auto& [name, value] : command.environment) settings.push_back(name + "=" + value);
  const auto word_pointers = pointers_to(words);
  const auto setting_pointers = pointers_to(settings);

  Pipe out = make_pipe();
  Pipe err = make_pipe();
  Pipe failure = make_pipe();
  ChildPlan plan{.parent = getpid(),
                 .words = word_pointers.data(),
                 .environment = setting_pointers.data(),
                 .cpus = {},
                 .bind = !command.cpus.empty(),
                 .stdin_fd = command.stdin_fd,
                 .stdout_fd = out.write.get(),
                 .stderr_fd = err.write.get(),
                 .error_fd = failure.write.get(),
                 .descriptors = command.descriptors ? &*command.descriptors : nullptr};
  CPU_ZERO(&plan.cpus);
  for (const int cpu : command.cpus) CPU_SET(static_cast<size_t>(cpu), &plan.cpus);

  const pid_t pid = fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "cannot start a process");
  if (pid == 0) become_program(plan);
  failure.write.reset();

  int error = 0;
  ssize_t got = 0;
  while ((got = read(failure.read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got > 0) {
    waitpid(pid, nullptr, 0);
    throw UsageError(
        fmt::format("cannot execute {}: {}; hint: is it a program, or a script that starts with #! ?",
                    command.words[0], std::strerror(error)));
  }
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) throw std::system_error(errno, std::generic_category(), "pidfd_open");
  fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  return {pid, std::move(pidfd), std::move(out.read), std::move(err.read)};
}

}  // namespace lockstep::launch
