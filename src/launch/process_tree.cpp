#include "launch/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "launch/unique_fd.h"

namespace lockstep::launch {

namespace {

struct ProcessState {
  pid_t parent;
  bool alive;
};

/// Reads /proc/PID/stat: `pid (name) state parent ...`, where the name may hold anything, parentheses too.
std::optional<ProcessState> read_state(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  char text[512];
  const ssize_t size = read(file.get(), text, sizeof text - 1);
  if (size <= 0) return std::nullopt;
  text[size] = '\0';
  const char* name_end = std::strrchr(text, ')');
  if (name_end == nullptr || name_end[1] != ' ' || name_end[2] == '\0') return std::nullopt;
  const char state = name_end[2];
  return ProcessState{.parent = std::atoi(name_end + 3), .alive = state != 'Z' && state != 'X'};
}

std::map<pid_t, ProcessState> all_processes() {
  std::map<pid_t, ProcessState> found;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) throw std::system_error(errno, std::generic_category(), "cannot read /proc");
  while (const dirent* entry = readdir(proc)) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (const auto state = read_state(pid)) found.emplace(pid, *state);
  }
  closedir(proc);
  return found;
}

bool signal_one(pid_t pid, int signal) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return false;
  const auto state = read_state(pid);
  if (!state || !state->alive) return false;
  return syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
}

}  // namespace

void become_subreaper() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot become the subreaper of the job's processes");
  }
}

std::vector<pid_t> living_descendants(pid_t ancestor) {
  const auto processes = all_processes();
  std::multimap<pid_t, pid_t> children;
  for (const auto& [pid, state] : processes) children.emplace(state.parent, pid);
  std::vector<pid_t> all = {ancestor};
  for (size_t i = 0; i < all.size(); ++i) {
    const auto [begin, end] = children.equal_range(all[i]);
    for (auto child = begin; child != end; ++child) all.push_back(child->second);
  }
  std::vector<pid_t> alive;
  for (size_t i = 1; i < all.size(); ++i) {
    if (processes.at(all[i]).alive) alive.push_back(all[i]);
  }
  return alive;
}

int signal_descendants(int signal) {
  int count = 0;
  for (const pid_t pid : living_descendants(getpid())) count += signal_one(pid, signal) ? 1 : 0;
  return count;
}

bool kill_descendants(std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    signal_descendants(SIGKILL);
    pid_t reaped = 0;
    while ((reaped = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    poll(nullptr, 0, 2);  // the kernel takes a moment to end what was killed
  }
}

}  // namespace lockstep::launch
