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

/// What load found after a process was killed within save, or had ended.
struct Kill {
  bool has_ended = false;
  std::optional<Bytes> found;
};

}  // namespace

void check_kills(const Seam& seam, Checker& checker) {
  constexpr size_t kMostPoints = 400;
  const TemporaryFolder folder;
  const Bytes last = state_number(checker, 5);
  const auto state_at = [&](size_t point) { return state_number(checker, 6 + point % 50); };
  // The process that loads has never saved: what was kept in memory alone does not help.
  const auto all = checker.in_child([&] {
    std::vector<Kill> kills;
    for (size_t point = 0; point < kMostPoints && (kills.empty() || !kills.back().has_ended); ++point) {
      tell_progress(fmt::format("save in a process that is killed at point {}", point));
      save_in_child(seam, folder.path(), last, FolderDisk::kNever, checker);
      auto& kill = kills.emplace_back();
      kill.has_ended = save_in_child(seam, folder.path(), state_at(point), point, checker);
      kill.found = seam.load(FolderDisk(folder.path()), kName);
    }
    return kills;
  });
  size_t kills = 0, news = 0;
  for (size_t point = 0; point < all.size(); ++point) {
    const auto& [has_ended, found] = all[point];
    const Bytes state = state_at(point);
    const auto what =
        fmt::format("{} of save on a real disk: load, in another process, gives {}",
                    has_ended ? std::string("after the end") : fmt::format("SIGKILL at point {}", point),
                    text_of(found, last, state));
    checker.expect(found.has_value(), "nothing left", what,
                   "The old checkpoint must stay until the new one is in its place, and both must be files.");
    checker.expect(
        *found == state || (*found == last && !has_ended), "torn checkpoint", what,
        "A process can die between any two writes. Only whole files may have the name that load reads.");
    kills += has_ended ? 0 : 1;
    news += !has_ended && *found == state ? 1 : 0;
  }
  checker.proved(fmt::format(
      "{} processes killed by SIGKILL within save, on a real disk, at every call and every 16 bytes: "
      "{} left the old state, {} the new one, none half of one",
      kills, kills - news, news));
}

}  // namespace lab::checkpoint
