#include "support/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace lockstep::test {

namespace {

namespace fs = std::filesystem;

/// A shell may have started us with signals ignored or blocked; a program under test starts like from a
/// terminal.
void restore_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD, SIGTSTP}) {
    ::signal(signal, SIG_DFL);
  }
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

int open_or_throw(const fs::path& file, int flags) {
  const int fd = open(file.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) throw std::runtime_error("cannot open " + file.string());
  return fd;
}

}  // namespace

bool eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

std::string read_file(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

Child::Child(const std::vector<std::string>& command, const Options& options) {
  mark_ = folder_.path().filename().string();
  launch::Environment environment = launch::current_environment();
  for (const auto& [name, value] : options.environment) environment[name] = value;
  environment["LOCKSTEP_TEST_MARK"] = mark_;
  std::vector<std::string> words = command;
  std::vector<std::string> settings;
  for (const auto& [name, value] : environment) settings.push_back(name + "=" + value);
  const auto word_pointers = pointers_to(words);
  const auto setting_pointers = pointers_to(settings);
  std::ofstream(folder_ / "input") << options.input;
  const int input = open_or_throw(folder_ / "input", O_RDONLY);
  const int output = open_or_throw(folder_ / "output", O_WRONLY | O_CREAT | O_APPEND);
  const int errors = open_or_throw(folder_ / "errors", O_WRONLY | O_CREAT | O_APPEND);
  const std::string folder = options.folder.empty() ? folder_.path().string() : options.folder.string();
  pid_ = fork();
  if (pid_ == 0) {
    restore_signals();
    if (chdir(folder.c_str()) != 0) _exit(126);
    dup2(input, STDIN_FILENO);
    dup2(options.stdout_fd >= 0 ? options.stdout_fd : output, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    if (options.before) options.before();
    execvpe(words[0].c_str(), word_pointers.data(), setting_pointers.data());
    _exit(127);
  }
  for (const int fd : {input, output, errors}) close(fd);
  if (pid_ < 0) throw std::runtime_error("fork failed");
}

Child::~Child() {
  for (const pid_t pid : family()) kill(pid, SIGKILL);
  if (exit_code_ < 0) waitpid(pid_, nullptr, 0);
}

void Child::send(int signal) const {
  kill(pid_, signal);
}

int Child::wait() {
  int status = 0;
  const bool ended = exit_code_ >= 0 || eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended) throw std::runtime_error("the program did not end; it said:\n" + output() + errors());
  if (exit_code_ < 0) exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return exit_code_;
}

std::vector<pid_t> Child::family() const {
  const std::string needle = "LOCKSTEP_TEST_MARK=" + mark_;
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read_file(entry.path() / "environ").find(needle) == std::string::npos) continue;  // empty for zombies
    found.push_back(std::stoi(name));
  }
  return found;
}

bool Child::leaves_nothing() const {
  return eventually([&] { return family().empty(); });
}

Finished run_to_end(const std::vector<std::string>& command, const Child::Options& options) {
  Child child(command, options);
  const int exit_code = child.wait();
  return {exit_code, child.output(), child.errors()};
}

}  // namespace lockstep::test
