#include "lab/checker.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <set>
#include <utility>

namespace lab {

namespace {

/// What a child may allocate: a list that grows for ever is refused before it takes all of the machine's
/// memory.
constexpr rlim_t kMostBytes = rlim_t{4} << 30;

void limit_memory() {
  if (dlsym(RTLD_DEFAULT, "__sanitizer_print_stack_trace") != nullptr) return;  // sanitizers reserve far more
  std::ifstream statm("/proc/self/statm");  // in pages: size, resident, shared, text, 0, data
  rlim_t pages = 0;
  for (int field = 0; field < 6; ++field) statm >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + kMostBytes;
  const rlimit limit = {.rlim_cur = most, .rlim_max = most};
  setrlimit(RLIMIT_DATA, &limit);
}

/// Unwinds a check that has failed.
struct CheckFailed {};

/// What the world's own problems usually mean.
const std::map<std::string, std::string>& meanings() {
  static const std::map<std::string, std::string> all = {
      {"deadlock",
       "Every rank waits for another one, so nobody can go on. A send may wait until its message is "
       "received: start it with isend, "
       "receive, then wait for it; or let some ranks receive first."},
      {"exception", "Your code, or something that it called, threw an exception that nobody caught."},
      {"wrong size", "The two ends of a message must agree on its length. Do both compute the same chunk?"},
      {"wrong rank",
       "Ranks are numbered from 0 to world_size - 1: wrap around with the remainder, also below 0."},
      {"wrong stream",
       "What start() is given runs on the communication stream, beside the rank's own code, and talks by the "
       "Rank that it is called with: [...](lab::Rank& stream) { ... stream ... }."},
      {"buffer changed",
       "After isend the data still belongs to the message. Call wait() before you write there, or write "
       "elsewhere."},
      {"buffer in flight",
       "A message owns its memory from isend or irecv until wait(): what is received may be written there at "
       "any "
       "moment, and holds NaNs until then. Wait first, or receive into memory of its own."},
      {"never waited",
       "isend, irecv and start only begin something. Keep the Work that they return and call wait() on it."},
      {"never received",
       "Every message that is sent must be asked for. Which rank should have received this one?"},
      {"library called",
       "This lesson is to write it yourself, out of messages between ranks (send, recv, isend, irecv)."},
      {"endless", "Look at the condition of your loops: which of them never becomes false?"},
  };
  return all;
}

/// What a problem usually means, as far as its words tell.
std::string meaning_of(const Report& report) {
  if (report.problem == "deadlock" && report.what.find("in send") == std::string::npos &&
      report.what.find("in recv") != std::string::npos)
    return "Whoever is in recv waits for a message that nobody is going to send. Which rank should have sent "
           "it? It is done already, or waits for somebody itself.";
  if (report.problem == "wrong rank" && report.what.ends_with("itself"))
    return "A rank has its own data: it copies them, and sends nothing. In a world of one rank there is "
           "nobody "
           "to talk to, and every loop over steps or peers must be empty.";
  return meanings().at(report.problem);
}

/// What a child hands back.
struct Outcome {
  bool is_whole = false;  ///< The body came to its end.
  CheckResult result;     ///< With a failure, if there is one; the run to look at; notes.
  Report last_run;
  std::string data;
};

/// A file in memory that a child writes and its parent reads.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {
    if (fd_ < 0) throw std::runtime_error(std::string("memfd_create: ") + strerror(errno));
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(fd_); }
  int fd() const { return fd_; }
  void write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_, text.data(), text.size());
      if (written <= 0) return;
      text.remove_prefix(static_cast<size_t>(written));
    }
  }
  std::string read() const {
    std::string text(static_cast<size_t>(std::max<off_t>(0, lseek(fd_, 0, SEEK_END))), '\0');
    for (size_t at = 0; at < text.size();) {
      const ssize_t got = pread(fd_, text.data() + at, text.size() - at, static_cast<off_t>(at));
      if (got <= 0) return text.substr(0, at);
      at += static_cast<size_t>(got);
    }
    return text;
  }

 private:
  int fd_;
};

/// A line of what a sanitizer printed: the first that has `words`, from there on.
std::string line_with(const std::string& text, const std::string& words) {
  const auto at = text.find(words);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

/// Where in the learner's file a sanitizer found something: ` in FUNCTION step09_ring_allreduce.cpp:12`.
std::string frame_of(const std::string& errors) {
  for (size_t at = 0; (at = errors.find(" in my_work::", at)) != std::string::npos; ++at) {
    const std::string line = errors.substr(at, errors.find('\n', at) - at);
    const auto folder = line.rfind('/');
    return folder == std::string::npos ? line
                                       : line.substr(0, line.find(" /")) + ' ' + line.substr(folder + 1);
  }
  return "";
}

double cpu_seconds(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Whether every thread of a process sleeps: for a time, or for what somebody else does. Threads that wait
/// for each other in turn may look so, too, as they are read one by one.
bool is_asleep(pid_t pid) {
  std::error_code is_gone;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), is_gone)) {
    std::string line;
    std::getline(std::ifstream(thread.path() / "stat"), line);
    const auto name_end = line.rfind(") ");
    if (name_end != std::string::npos && line.substr(name_end + 2, 1) != "S") return false;
  }
  return true;
}

constexpr int kAsleepS = 5;

struct Ending {
  int status = 0;
  bool was_asleep = false;  ///< It slept for kAsleepS, nearly all of the time, and was ended.
};

/// Waits for a child's end.
Ending wait_for(pid_t child) {
  constexpr int kLookMs = 100;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  pollfd polled = {.fd = pidfd, .events = POLLIN, .revents = 0};
  Ending ending;
  double cpu_s = 0;
  for (int asleep = 0; pidfd >= 0 && poll(&polled, 1, kLookMs) <= 0;) {
    const double had_s = std::exchange(cpu_s, cpu_seconds(child));
    asleep = is_asleep(child) && cpu_s - had_s < 0.001 ? asleep + 1 : std::max(0, asleep - 4);
    if (asleep * kLookMs < kAsleepS * 1000) continue;
    ending.was_asleep = true;
    kill(child, SIGKILL);
    break;
  }
  while (waitpid(child, &ending.status, 0) < 0 && errno == EINTR) {
  }
  if (pidfd >= 0) close(pidfd);
  return ending;
}

/// How a child ended that did not come to the end of its body.
Failure failure_of(const Ending& ending, int cpu_s, const std::string& errors, const std::string& where) {
  const int status = ending.status;
  if (const auto line = line_with(errors, "ERROR: AddressSanitizer: "); !line.empty()) {
    return {"memory error",
            fmt::format("{}{}, {}", line.substr(7, line.find(" on ") - 7), frame_of(errors), where),
            "Your code read or wrote memory that is not its own: beyond the end of a vector or span, or of "
            "one that is gone. The address sanitizer's full report is below.",
            0, 0};
  }
  if (const auto line = line_with(errors, "ERROR: LeakSanitizer: "); !line.empty()) {
    return {
        "memory leak", fmt::format("{}, {}", line_with(errors, "SUMMARY: "), where),
        "Memory that was allocated with new or malloc and never freed. Use std::vector or std::unique_ptr.",
        0, 0};
  }
  if (const auto line = line_with(errors, "runtime error: "); !line.empty()) {
    return {
        "undefined behaviour", fmt::format("{}, {}", line, where),
        "The undefined behaviour sanitizer found it: such code may do anything, also what you want today.", 0,
        0};
  }
  if (ending.was_asleep) {
    return {"went on for too long", fmt::format("it did nothing but wait for {} s, {}", kAsleepS, where),
            "Your code sleeps, or waits for something that never comes: input, a lock, a thread. The world's "
            "clock goes on by itself.",
            0, 0};
  }
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (signal == SIGXCPU || signal == SIGKILL) {
    return {"went on for too long",
            fmt::format("it was still running after {} s of CPU time, {}", cpu_s, where),
            "A loop that never ends. Which condition never becomes false?", 0, 0};
  }
  if (signal == SIGABRT && errors.find("Assertion") != std::string::npos) {
    return {"index out of range",
            "a span or a vector was asked for an element that it does not have, " + where,
            "Compare the index with size(). The line that the assertion names is in the header; the call is "
            "yours.",
            0, 0};
  }
  if (signal != 0) {
    return {
        fmt::format("crashed by SIG{}", sigabbrev_np(signal)),
        fmt::format("the system ended it ({}), {}", strsignal(signal), where),
        "SIGSEGV: memory that is not yours, often an index beyond the end or a buffer that is gone. SIGFPE: "
        "an integer divided by zero. SIGABRT: an exception in a destructor or a thread, or a failed "
        "assertion.",
        0, 0};
  }
  return {"left by itself",
          fmt::format("your code ended the whole process with exit code {}, {}", WEXITSTATUS(status), where),
          "Do not call exit(): return, or throw.", 0, 0};
}

}  // namespace

std::string Checker::run_in_child(const std::function<std::string()>& body) {
  const MemoryFile outcome_file("lab-outcome"), errors_file("lab-errors");
  std::fflush(nullptr);
  tell_progress("");
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw std::runtime_error(std::string("fork: ") + strerror(errno));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const auto seconds = static_cast<rlim_t>(options_.cpu_s);
    const rlimit limit = {.rlim_cur = seconds, .rlim_max = seconds + 1};
    setrlimit(RLIMIT_CPU, &limit);
    limit_memory();
    dup2(errors_file.fd(), STDERR_FILENO);
    Outcome outcome;
    try {
      outcome.data = body();
    } catch (const CheckFailed&) {
    } catch (const std::bad_alloc&) {
      result_.has_failed = true;
      result_.failure = {
          "out of memory",
          fmt::format("{}your code asked for more than the {} GiB that a check may use",
                      part_.empty() ? "" : part_ + ": ", kMostBytes >> 30),
          "A list that grows in a loop that never ends, or a size that was computed below zero: "
          "as an unsigned number that is a huge one.",
          world_, options_.seed};
    } catch (...) {
      result_.has_failed = true;
      result_.failure = {"exception",
                         (part_.empty() ? "" : part_ + ": ") + "your code threw: " + describe_exception(),
                         meanings().at("exception"), world_, options_.seed};
    }
    outcome.is_whole = true;
    outcome.result = std::move(result_);
    outcome.last_run = std::move(last_run_);
    std::string bytes;
    data::put(bytes, outcome);
    outcome_file.write(bytes);
    // With the address sanitizer only; it ends this process if it finds a leak.
    if (!outcome.result.has_failed) {
      if (auto* const find_leaks = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "__lsan_do_leak_check")))
        find_leaks();
    }
    std::fflush(nullptr);
    _exit(0);
  }
  const Ending ending = wait_for(child);
  const std::string errors = errors_file.read();
  std::fwrite(errors.data(), 1, errors.size(), stderr);
  Outcome outcome;
  const std::string bytes = outcome_file.read();
  if (!bytes.empty()) {
    data::Reader reader(bytes);
    outcome = data::get<Outcome>(reader);
  }
  // Where processes may not be traced, leaks cannot be looked for.
  const bool has_ended = (WIFEXITED(ending.status) && WEXITSTATUS(ending.status) == 0) ||
                         errors.find("LeakSanitizer has encountered a fatal error") != std::string::npos;
  if (!outcome.is_whole || !has_ended) {
    const std::string doing = progress().text;
    if (progress().world > 0) in_world(progress().world);
    const Failure failure =
        failure_of(ending, options_.cpu_s, errors, doing.empty() ? "before its first call" : "in " + doing);
    fail(failure.name, (part_.empty() ? "" : part_ + ": ") + failure.what, failure.meaning);
  }
  // What was proved is for this process to say.
  outcome.result.proved = std::move(result_.proved);
  result_ = std::move(outcome.result);
  last_run_ = std::move(outcome.last_run);
  if (result_.has_failed) throw CheckFailed{};
  return std::move(outcome.data);
}

std::vector<int> Checker::worlds(std::vector<int> all) const {
  return options_.world > 0 ? std::vector<int>{options_.world} : std::move(all);
}

std::vector<int> Checker::fresh_worlds(int count, int low, int high) const {
  if (options_.world > 0) return {options_.world};
  std::set<int> all;
  for (const int world : {6, 7}) {
    if (world >= low && world <= high) all.insert(world);
  }
  for (int i = 0; i < count; ++i)
    all.insert(static_cast<int>(draw_between(0xf7e5 + static_cast<uint64_t>(i), low, high)));
  return {all.begin(), all.end()};
}

int64_t Checker::draw_between(uint64_t salt, int64_t low, int64_t high) const {
  return low + static_cast<int64_t>(draw(salt) % static_cast<uint64_t>(high - low + 1));
}

uint64_t Checker::draw(uint64_t salt) const {
  uint64_t x = options_.seed * 0x9e3779b97f4a7c15ULL + salt + 1;  // SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

Report Checker::run(WorldOptions options, const std::function<void(Rank&)>& body) {
  in_world(options.world);
  options.seed = options_.seed;
  Report report = run_world(options, body);
  expect_no_problem(report);
  if (result_.shown_world == 0 && !report.events.empty()) last_run_ = report;
  return report;
}

void Checker::expect_no_problem(const Report& report) {
  if (report.problem.empty()) return;
  if (!report.events.empty()) show(report);
  fail(report.problem, (part_.empty() ? "" : part_ + ": ") + report.what, meaning_of(report));
}

void Checker::in_world(int world) {
  world_ = world;
}

void Checker::in_part(const std::string& name) {
  part_ = name;
}

void Checker::expect(bool holds, const std::string& name, const std::string& what,
                     const std::string& meaning) {
  if (!holds) fail(name, what, meaning);
}

void Checker::fail(const std::string& name, const std::string& what, const std::string& meaning) {
  result_.has_failed = true;
  result_.failure = {name, what, meaning, world_, options_.seed};
  if (result_.shown_world == 0 && !last_run_.events.empty()) show(std::move(last_run_));
  throw CheckFailed{};
}

void Checker::proved(const std::string& sentence) {
  result_.proved.push_back(sentence);
}
void Checker::note(const std::string& text) {
  result_.notes.push_back(text);
}

void Checker::show(Report report) {
  result_.shown_world = static_cast<int>(report.bytes.size());
  result_.shown = std::move(report);
}

CheckResult run_check(const std::function<void(Checker&)>& check, const CheckOptions& options) {
  Checker checker(options);
  try {
    check(checker);
    if (checker.result().proved.empty())
      checker.fail("nothing proved", "the check ended without having proved anything",
                   "Something in your file ended the check early, or replaced it.");
  } catch (const CheckFailed&) {
  } catch (...) {
    checker.result().has_failed = true;
    checker.result().failure = {"exception", "your code threw: " + describe_exception(),
                                meanings().at("exception"), 0, options.seed};
  }
  return checker.result();
}

}  // namespace lab
