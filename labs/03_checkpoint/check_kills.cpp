#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "03_checkpoint/parts.h"

namespace lab::checkpoint {

namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-lab-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Saves in a child that is killed at that point; true if it came to its end.
bool save_in_child(const Seam& seam, const std::string& folder, const Bytes& state, size_t kill_after,
                   Checker& checker) {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    try {
      FolderDisk disk(folder, kill_after);
      seam.save(disk, kName, state);
      _exit(0);
    } catch (...) {
      _exit(9);
    }
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return false;
  checker.expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "fails on a real disk",
                 "save, in a process of its own on a real folder, ended with an exception or a crash",
                 "A call was refused that the simulated disk allows. Are names plain, without a folder?");
  return true;
}

}  // namespace

void check_kills(const Seam& seam, Checker& checker) {
  constexpr size_t kMostPoints = 400;
  const TemporaryFolder folder;
  const Bytes last = state_number(seam, checker, 5);
  FolderDisk disk(folder.path());
  size_t kills = 0, news = 0;
  for (size_t point = 0; point < kMostPoints; ++point) {
    const Bytes state = state_number(seam, checker, 6 + point % 50);
    tell_progress(fmt::format("save in a process that is killed at point {}", point));
    seam.save(disk, kName, last);
    const bool has_ended = save_in_child(seam, folder.path(), state, point, checker);
    const auto found = seam.load(disk, kName);
    const auto what = fmt::format("SIGKILL at point {} of save on a real disk: load gives {}", point,
                                  told(found, last, state));
    checker.expect(found.has_value(), "nothing left", what,
                   "The old checkpoint must stay until the new one is in its place.");
    checker.expect(
        *found == state || (*found == last && !has_ended), "torn checkpoint", what,
        "A process can die between any two writes. Only whole files may have the name that load reads.");
    kills += has_ended ? 0 : 1;
    news += !has_ended && *found == state ? 1 : 0;
    if (has_ended) break;
  }
  checker.proved(fmt::format(
      "{} processes killed by SIGKILL within save, on a real disk, at every call and every 16 bytes: "
      "{} left the old state, {} the new one, none half of one",
      kills, kills - news, news));
}

}  // namespace lab::checkpoint
