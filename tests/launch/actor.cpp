// A rank for the launcher's tests: does what its words say, in order. Steps that wait do so on an event, for
// a minute.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void say(int fd, const std::string& text) {
  if (write(fd, text.data(), text.size()) < 0) _exit(99);
}

void make_file(const std::string& name) {
  close(open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

void await_file(const std::string& name) {
  for (int i = 0; i < 60'000; ++i) {
    if (access(name.c_str(), F_OK) == 0) return;
    poll(nullptr, 0, 1);
  }
  say(STDERR_FILENO, "actor: " + name + " never came\n");
  _exit(98);
}

/// A process that has left parent, group and session, ignores every polite request, and lives for a minute.
void leave_daemon(const std::string& ready_file) {
  const pid_t middle = fork();
  if (middle == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::signal(signal, SIG_IGN);
    make_file(ready_file);
    poll(nullptr, 0, 60'000);
    _exit(0);
  }
  waitpid(middle, nullptr, 0);
  await_file(ready_file);
}

int caught_exit_code = 0;

void on_signal(int signal) {
  const char* name = sigabbrev_np(signal);
  const std::string line = "caught SIG" + std::string(name) + "\n";
  say(STDOUT_FILENO, line);
  if (caught_exit_code >= 0) _exit(caught_exit_code);
}

void print_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::string text = "cpus";
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) text += " " + std::to_string(cpu);
  }
  say(STDOUT_FILENO, text + "\n");
}

void print_numbers(int count, const std::string& filler) {
  for (int i = 0; i < count; ++i) {
    // In two writes, so that a launcher that does not keep lines whole mixes them.
    say(STDOUT_FILENO, "rank " + variable("RANK"));
    say(STDOUT_FILENO, " line " + std::to_string(i) + filler + "\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string rank = variable("RANK");
  bool my_rank = true, my_attempt = true;  // whether the following words are for this process
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto next = [&] { return std::string(++i < argc ? argv[i] : ""); };
    const bool mine = my_rank && my_attempt;
    const auto is = [&](const char* name, int arguments) {
      if (word != name) return false;
      if (!mine) i += arguments;
      return mine;
    };
    if (word == "rank") {
      my_rank = next() == rank;
    } else if (word == "all") {
      my_rank = my_attempt = true;
    } else if (word == "attempt") {
      my_attempt = next() == variable("TORCHELASTIC_RESTART_COUNT");
    } else if (is("ignore-term", 0)) {
      signal(SIGTERM, SIG_IGN);
    } else if (is("daemon", 1)) {
      leave_daemon(next() + rank);
    } else if (is("name", 1)) {
      prctl(PR_SET_NAME, next().c_str());
    } else if (is("touch", 1)) {
      make_file(next());
    } else if (is("touch-mine", 1)) {
      make_file(next() + rank);
    } else if (is("await", 1)) {
      await_file(next());
    } else if (is("catch", 2)) {  // signal number, exit code (-1: go on)
      const int signal = std::atoi(next().c_str());
      caught_exit_code = std::atoi(next().c_str());
      ::signal(signal, on_signal);
    } else if (is("print", 1)) {
      say(STDOUT_FILENO, next() + "\n");
    } else if (is("print-raw", 1)) {
      say(STDOUT_FILENO, next());
    } else if (is("complain", 1)) {
      say(STDERR_FILENO, next() + "\n");
    } else if (is("count", 2)) {
      const int count = std::atoi(next().c_str());
      print_numbers(count, std::string(static_cast<size_t>(std::atoi(next().c_str())), 'x'));
    } else if (is("env", 1)) {
      const std::string name = next();
      say(STDOUT_FILENO, name + "=" + variable(name.c_str()) + "\n");
    } else if (is("cpus", 0)) {
      print_cpus();
    } else if (is("read", 0)) {
      char line[256] = "";
      const ssize_t size = read(STDIN_FILENO, line, sizeof line - 1);
      say(STDOUT_FILENO, "read " + std::to_string(size) + " " + line + "\n");
    } else if (is("write-error-file", 1)) {
      const std::string file = variable("TORCHELASTIC_ERROR_FILE");
      if (FILE* stream = std::fopen(file.c_str(), "w")) {
        std::fprintf(stream, "{\"message\": {\"message\": \"%s\"}}", next().c_str());
        std::fclose(stream);
      }
    } else if (is("die", 1)) {
      raise(std::atoi(next().c_str()));
    } else if (is("exit", 1)) {
      _exit(std::atoi(next().c_str()));
    } else if (is("pause", 0)) {
      for (int left = 60; left > 0; left -= 1) poll(nullptr, 0, 1000);
    } else if (mine) {
      say(STDERR_FILENO, "actor: unknown word " + word + "\n");
      return 97;
    }
  }
  return 0;
}
