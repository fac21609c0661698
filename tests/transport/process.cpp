#include "transport/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace lockstep::test {

Process::Process(const std::function<void(const Say&)>& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  pipe_.reset(ends[0]);
  launch::UniqueFd out(ends[1]);
  std::fflush(nullptr);  // else what is buffered is printed by both
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) return;
  const Say say = [&](const std::string& line) {
    const std::string text = line + "\n";
    if (write(out.get(), text.data(), text.size()) < 0) _exit(3);
  };
  int code = 0;
  try {
    body(say);
  } catch (const std::exception& error) {
    say(error.what());
    code = 1;
  }
  _exit(code);
}

Process::~Process() {
  if (status_ >= 0) return;
  kill(SIGKILL);
  wait();
}

void Process::kill(int signal) const {
  ::kill(pid_, signal);
}

std::string Process::line() {
  constexpr int kPatienceMs = 60000;
  for (;;) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string found = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return found;
    }
    pollfd waiting = {.fd = pipe_.get(), .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kPatienceMs) == 0) return "(nothing)";
    std::array<char, 4096> piece{};
    const ssize_t got = read(pipe_.get(), piece.data(), piece.size());
    if (got <= 0) return "(ended)";
    buffer_.append(piece.data(), static_cast<std::size_t>(got));
  }
}

int Process::wait() {
  if (status_ < 0) waitpid(pid_, &status_, 0);
  return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
}

}  // namespace lockstep::test
