#include "launch/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <optional>
#include <system_error>

#include "launch/failure_report.h"
#include "launch/live_output.h"
#include "launch/ports.h"
#include "launch/process_tree.h"
#include "launch/rank_log.h"
#include "launch/rank_process.h"
#include "launch/signals.h"
#include "lockstep/error.h"

namespace lockstep::launch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kExitNotStarted = 127;  // as shells say it
constexpr int kExitRefused = 2;       // as most programs say that they were called wrongly
constexpr auto kKillInterval = std::chrono::milliseconds(5);
constexpr auto kKillPatience = std::chrono::seconds(10);
constexpr auto kReaderPatience = std::chrono::nanoseconds(std::chrono::seconds(1));

int64_t now_ns() {
  return Clock::now().time_since_epoch().count();
}

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::string prefix_of(int node_rank, int rank, bool colour) {
  constexpr std::array kColours = {36, 33, 35, 32, 34, 31};
  if (!colour) return fmt::format("[{}:{}] ", node_rank, rank);
  return fmt::format("\033[{}m[{}:{}]\033[0m ", kColours[static_cast<size_t>(rank) % kColours.size()],
                     node_rank, rank);
}

/// One rank over all attempts: its logs, and its process while it runs.
struct Rank {
  const RankSpec& spec;
  StreamLog stdout_log;
  StreamLog stderr_log;
  RankProcess process = {};
  bool running = false;
};

class Keeper {
 public:
  Keeper(const Job& job, const Environment& inherited, const Console& console, pid_t front);
  int run();

 private:
  /// kRunning until something ends the attempt; kEnding after a request to stop, until the grace period is
  /// over; kKilling until nothing is left.
  enum class Phase { kRunning, kEnding, kKilling };
  enum class Source : uint32_t { kSignals, kFront, kReader, kDeath, kStdout, kStderr };

  void watch(int fd, uint32_t events, Source source, size_t index = 0);
  void watch_pipes(bool on);
  void start(int attempt);
  void run_attempt(int attempt);
  void step();
  void handle(Source source, size_t index);
  void take_signals();
  void take_death(Rank& rank);
  void take_output(UniqueFd& pipe, StreamLog& log);
  void reap_strays();
  bool no_children() const;
  void end_attempt(int signal);
  void kill_everything();
  void drain(Rank& rank);
  bool show();
  void say(const std::string& text) { output_.add(STDERR_FILENO, text); }
  void finish_output();
  int finish(int code);
  void drop_output();
  std::chrono::nanoseconds grace() const {
    return std::chrono::nanoseconds(static_cast<int64_t>(job_.grace_s * 1e9));
  }
  int report(bool is_last);

  const Job& job_;
  const Environment& inherited_;
  const rlimit descriptors_;  ///< RLIMIT_NOFILE as the user set it.
  UniqueFd epoll_;
  UniqueFd signals_;
  const pid_t front_pid_;
  UniqueFd front_;
  UniqueFd no_input_;
  std::vector<Rank> ranks_;
  std::vector<Attempt> attempts_;
  LiveOutput output_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_;  ///< Of the phase: kEnding turns into kKilling, kKilling gives up.
  size_t running_ = 0;          ///< Ranks that have not been reaped.
  int stop_signal_ = 0;         ///< The user's request to stop, if there was one.
  int interrupts_ = 0;
  bool front_died_ = false;
  bool gave_up_ = false;
  bool pipes_watched_ = false;
  bool watched_readers_[3] = {};  ///< By descriptor: it is blocked, and epoll watches it for room.
};

Keeper::Keeper(const Job& job, const Environment& inherited, const Console& console, pid_t front)
    : job_(job),
      inherited_(inherited),
      descriptors_(reserve_descriptors(job.ranks.size())),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      signals_(signalfd(-1, &launcher_signals(), SFD_CLOEXEC | SFD_NONBLOCK)),
      front_pid_(front),
      front_(static_cast<int>(syscall(SYS_pidfd_open, front, 0))),
      no_input_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  if (!epoll_ || !signals_ || !no_input_) throw_errno("cannot set up the launcher");
  front_died_ = !front_ || getppid() != front;
  watch(signals_.get(), EPOLLIN, Source::kSignals);
  if (front_) watch(front_.get(), EPOLLIN, Source::kFront);
  ranks_.reserve(job.ranks.size());
  for (const auto& spec : job.ranks) {
    std::error_code error;
    std::filesystem::create_directories(spec.log_dir, error);
    if (error) {
      throw UsageError(fmt::format("--log-dir {}: cannot make {}: {}; hint: name a folder that you may write",
                                   job.log_dir.string(), spec.log_dir.string(), error.message()));
    }
    const auto log = [&](const char* name, int fd, bool live, bool colour) {
      return StreamLog(spec.log_dir / name, fd, live, prefix_of(job.node_rank, spec.rank, colour));
    };
    ranks_.push_back(
        {.spec = spec,
         .stdout_log = log("stdout.log", STDOUT_FILENO, spec.tee_stdout, console.colour_stdout),
         .stderr_log = log("stderr.log", STDERR_FILENO, spec.tee_stderr, console.colour_stderr)});
  }
}

void Keeper::watch(int fd, uint32_t events, Source source, size_t index) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(source) << 32 | index;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("epoll_ctl");
}

void Keeper::start(int attempt) {
  const int port = job_.choose_port ? find_free_port() : 0;
  // Rank 0 gets the input unless it is a terminal, which a process outside the terminal's session cannot
  // read.
  const bool has_input = isatty(STDIN_FILENO) == 0;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const bool gets_input = has_input && rank.spec.local_rank == 0;
    std::error_code ignored;
    std::filesystem::remove(rank.spec.log_dir / "error.json", ignored);  // an earlier attempt's
    rank.process = start_rank({.words = job_.command,
                               .environment = rank_environment(job_, rank.spec, inherited_, attempt, port),
                               .cpus = rank.spec.cpus,
                               .stdin_fd = gets_input ? STDIN_FILENO : no_input_.get(),
                               .descriptors = descriptors_});
    rank.running = true;
    ++running_;
    watch(rank.process.pidfd.get(), EPOLLIN, Source::kDeath, i);
  }
  if (attempt == 0) {
    // Not before: a run that is refused leaves the logs of the last one alone.
    for (auto& rank : ranks_) {
      rank.stdout_log.begin(output_);
      rank.stderr_log.begin(output_);
    }
  }
  watch_pipes(true);
}

void Keeper::watch_pipes(bool on) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    for (const auto& [pipe, source] : {std::pair(&ranks_[i].process.stdout_pipe, Source::kStdout),
                                       std::pair(&ranks_[i].process.stderr_pipe, Source::kStderr)}) {
      if (!*pipe) continue;
      if (on) watch(pipe->get(), EPOLLIN, source, i);
      if (!on) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pipe->get(), nullptr);
    }
  }
  pipes_watched_ = on;
}

void Keeper::run_attempt(int attempt) {
  phase_ = Phase::kRunning;
  if (attempt > 0) {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    char stamp[32];
    std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
    for (auto& rank : ranks_) {
      const std::string marker =
          fmt::format("--- lockstep: restart {} of {}, {} ---", attempt, job_.max_restarts, stamp);
      rank.stdout_log.mark(marker);
      rank.stderr_log.mark(marker);
    }
  }
  attempts_.push_back({.started_ns = now_ns(), .ends = {}, .not_started = {}});
  try {
    start(attempt);
  } catch (const std::exception& error) {
    if (attempt == 0) {
      kill_descendants(Clock::now() + kKillPatience);
      throw;
    }
    // The program may be gone by now, or a rank more be one too many: a failure like others.
    attempts_.back().not_started = error.what();
    kill_everything();
  }
  while (!gave_up_ && !(running_ == 0 && no_children())) step();
  for (auto& rank : ranks_) drain(rank);
  for (auto& end : attempts_.back().ends) {
    for (const auto& rank : ranks_) {
      if (rank.spec.rank != end.rank) continue;
      end.last_lines.assign(rank.stderr_log.last_lines().begin(), rank.stderr_log.last_lines().end());
    }
  }
}

void Keeper::step() {
  if (front_died_ && phase_ != Phase::kKilling) kill_everything();
  int timeout_ms = -1;
  if (phase_ == Phase::kEnding) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    if (left.count() <= 0) kill_everything();
    timeout_ms = static_cast<int>(std::max<int64_t>(left.count(), 0));
  }
  if (phase_ == Phase::kKilling) {
    signal_descendants(SIGKILL);
    gave_up_ = Clock::now() >= deadline_;
    timeout_ms = static_cast<int>(kKillInterval.count());
  }
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  // Descriptors come in the order in which they became ready, so that deaths are taken in the order of dying.
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
    handle(static_cast<Source>(tag >> 32), tag & 0xffffffff);
  }
  reap_strays();
  if (running_ == 0 && phase_ == Phase::kRunning && !no_children()) end_attempt(SIGTERM);
  show();
}

void Keeper::handle(Source source, size_t index) {
  switch (source) {
    case Source::kSignals:
      return take_signals();
    case Source::kFront:
      front_died_ = true;
      return;
    case Source::kReader:
      return;  // there is room: show() writes
    case Source::kDeath:
      return take_death(ranks_[index]);
    case Source::kStdout:
      return take_output(ranks_[index].process.stdout_pipe, ranks_[index].stdout_log);
    case Source::kStderr:
      return take_output(ranks_[index].process.stderr_pipe, ranks_[index].stderr_log);
  }
}

void Keeper::take_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    switch (signal) {
      case SIGINT:
        if (++interrupts_ > 1) {
          output_.drop();
          kill_everything();
          break;
        }
        [[fallthrough]];
      case SIGTERM:
      case SIGHUP:
        if (stop_signal_ == 0) stop_signal_ = signal;
        end_attempt(signal);
        break;
      case SIGUSR1:
      case SIGUSR2:
        // To the ranks alone: their helpers (data loaders, compilers) would die of it.
        for (const auto& rank : ranks_) {
          if (rank.running) kill(rank.process.pid, signal);
        }
        break;
      case SIGTSTP:
        signal_descendants(SIGSTOP);
        break;
      case SIGCONT:
        signal_descendants(SIGCONT);
        break;
      default:
        break;  // SIGCHLD: reap_strays follows every batch of events
    }
  }
}

void Keeper::take_death(Rank& rank) {
  if (!rank.running) return;
  int status = 0;
  if (waitpid(rank.process.pid, &status, WNOHANG) != rank.process.pid) return;
  rank.running = false;
  --running_;
  rank.process.pidfd.reset();
  attempts_.back().ends.push_back({.rank = rank.spec.rank,
                                   .local_rank = rank.spec.local_rank,
                                   .pid = rank.process.pid,
                                   .wait_status = status,
                                   .noticed_ns = now_ns(),
                                   .asked_to = phase_ != Phase::kRunning,
                                   .last_lines = {},
                                   .log_dir = rank.spec.log_dir});
  if (exit_code(status) != 0 && phase_ == Phase::kRunning) end_attempt(SIGTERM);
}

void Keeper::take_output(UniqueFd& pipe, StreamLog& log) {
  if (!pipe) return;
  std::array<char, 1 << 16> bytes;
  const ssize_t count = read(pipe.get(), bytes.data(), bytes.size());
  if (count > 0) {
    log.feed({bytes.data(), static_cast<size_t>(count)}, output_);
  } else if (count == 0 || errno != EAGAIN) {
    pipe.reset();
  }
}

void Keeper::reap_strays() {
  for (;;) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto is_it = [&](const Rank& rank) { return rank.running && rank.process.pid == info.si_pid; };
    if (std::any_of(ranks_.begin(), ranks_.end(), is_it)) return;  // its pidfd tells, in its turn
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

bool Keeper::no_children() const {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

void Keeper::end_attempt(int signal) {
  signal_descendants(signal);
  signal_descendants(SIGCONT);  // a stopped process takes no signal
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kEnding;
  deadline_ = Clock::now() + grace();
}

void Keeper::kill_everything() {
  if (phase_ == Phase::kKilling) return;
  phase_ = Phase::kKilling;
  deadline_ = Clock::now() + kKillPatience;
}

void Keeper::drain(Rank& rank) {
  output_.flush();
  const auto drain_pipe = [&](UniqueFd& pipe, StreamLog& log) {
    std::array<char, 1 << 16> bytes;
    ssize_t count = 0;
    while (pipe && (count = read(pipe.get(), bytes.data(), bytes.size())) > 0) {
      log.feed({bytes.data(), static_cast<size_t>(count)}, output_);
    }
    pipe.reset();
    log.finish(output_);
  };
  drain_pipe(rank.process.stdout_pipe, rank.stdout_log);
  drain_pipe(rank.process.stderr_pipe, rank.stderr_log);
}

/// Writes what can be written; returns whether that was anything.
bool Keeper::show() {
  const bool wrote = output_.flush();
  // A full queue means that our own reader is slow; the ranks then wait in write(), as they would without us.
  if (pipes_watched_ == output_.full()) watch_pipes(!output_.full());
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    const bool blocked = output_.waits_for(fd);
    if (blocked && !watched_readers_[fd]) watch(fd, EPOLLOUT, Source::kReader);
    if (!blocked && watched_readers_[fd]) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    watched_readers_[fd] = blocked;
  }
  return wrote;
}

void Keeper::finish_output() {
  show();
  const bool ended_well = first_failure(attempts_.back()) == nullptr && attempts_.back().not_started.empty();
  auto last_read = Clock::now();
  while (!output_.empty() && !front_died_ && interrupts_ < 2) {
    // A pager may take its time as with any program. A failure's exit code may not wait for a reader that
    // takes nothing.
    if (ended_well && stop_signal_ == 0) last_read = Clock::now();
    const auto patience = stop_signal_ != 0 ? kReaderPatience : std::max(kReaderPatience, grace());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(last_read + patience - Clock::now());
    if (left.count() <= 0) return drop_output();
    epoll_event event{};
    const int timeout_ms = static_cast<int>(std::min<int64_t>(left.count(), 60'000));
    if (epoll_wait(epoll_.get(), &event, 1, timeout_ms) == 1) {
      handle(static_cast<Source>(event.data.u64 >> 32), event.data.u64 & 0xffffffff);
    }
    if (show()) last_read = Clock::now();
  }
}

void Keeper::drop_output() {
  const size_t unread = output_.bytes_for(STDOUT_FILENO);
  output_.drop();
  if (unread > 0) {
    say(fmt::format("lockstep run: nobody reads standard output: its last {} bytes are in the logs alone\n",
                    unread));
  }
  show();
}

/// Shows what is left to be shown; returns the exit code, which tells of lost output if nothing else failed.
int Keeper::finish(int code) {
  finish_output();
  if (const int reason = output_.lost(STDOUT_FILENO)) {
    say(fmt::format("lockstep run: standard output: {}; hint: the logs have all of it\n",
                    std::strerror(reason)));
    finish_output();
  }
  const bool lost = output_.lost(STDOUT_FILENO) != 0 || output_.lost(STDERR_FILENO) != 0;
  return code == 0 && lost ? 1 : code;
}

int Keeper::run() {
  for (int attempt = 0;; ++attempt) {
    run_attempt(attempt);
    const RankEnd* const failure = first_failure(attempts_.back());
    const bool failed = failure != nullptr || !attempts_.back().not_started.empty();
    if (failure != nullptr && std::find(job_.stopped_codes.begin(), job_.stopped_codes.end(),
                                        exit_code(failure->wait_status)) != job_.stopped_codes.end()) {
      return finish(exit_code(failure->wait_status));
    }
    take_signals();  // what came since the last look must not be lost to a restart
    // A refusal of flags, files or values would come again.
    const bool refused = failure != nullptr && exit_code(failure->wait_status) == kExitRefused;
    const bool again =
        failed && !refused && stop_signal_ == 0 && !front_died_ && !gave_up_ && attempt < job_.max_restarts;
    const int code = report(!again);
    if (refused && attempt < job_.max_restarts) {
      say("lockstep run: not restarted: exit code 2 is a refusal, which would come again\n");
    }
    if (!again) return finish(code);
    say(fmt::format("lockstep run: restarting all ranks: restart {} of {}\n", attempt + 1,
                    job_.max_restarts));
    show();
  }
}

int Keeper::report(bool is_last) {
  const Attempt& last = attempts_.back();
  const RankEnd* cause = first_failure(last);
  char host[256] = "unknown host";
  gethostname(host, sizeof host - 1);
  const int number = static_cast<int>(attempts_.size());
  const bool failed = !last.not_started.empty() || (cause != nullptr && !cause->asked_to);
  const bool all_well = !failed && !front_died_ && stop_signal_ == 0;
  if (failed) say(failure_report(last, number, job_.max_restarts + 1, job_.node_rank, host));
  if (front_died_) {
    say(fmt::format("lockstep run: the launcher (pid {}) was killed; all ranks were ended\n", front_pid_));
  } else if (stop_signal_ != 0) {
    const std::string how = failed             ? "after the failure"
                            : cause == nullptr ? "all ranks ended well"
                                               : describe_end(cause->wait_status);
    say(fmt::format("lockstep run: stopped by SIG{}: {}\n", sigabbrev_np(stop_signal_), how));
  }
  if (is_last && number > 1 && (failed || all_well)) {
    say(failed ? "all attempts:\n"
               : fmt::format("lockstep run: all ranks ended well after {} restarts\n", number - 1));
    for (int i = 0; i < number; ++i) say(attempt_line(attempts_[static_cast<size_t>(i)], i + 1));
  }
  if (gave_up_) {
    const auto left = living_descendants(getpid());
    say(fmt::format("lockstep run: these processes do not die of SIGKILL (waiting for a device?): {}\n",
                    fmt::join(left, " ")));
  }
  if (!last.not_started.empty()) return kExitNotStarted;
  if (cause != nullptr) return exit_code(cause->wait_status);
  return gave_up_ ? 1 : 0;
}

}  // namespace

int keep_job(const Job& job, const Environment& inherited, const Console& console, pid_t front) {
  return Keeper(job, inherited, console, front).run();
}

}  // namespace lockstep::launch
