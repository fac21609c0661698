#include "launch/rank_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "lockstep/error.h"

namespace lockstep::launch {

namespace {

bool is_regular(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

/// In a folder that others may write, a link could lead us into any file of ours.
UniqueFd open_log(const std::filesystem::path& file) {
  const auto folder_name = file.parent_path();
  const UniqueFd folder(open(folder_name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  // Without O_NONBLOCK a named pipe would hold us until somebody reads it.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
  UniqueFd log(folder ? openat(folder.get(), file.filename().c_str(), kFlags, 0644) : -1);
  const int reason = errno;
  for (const auto& name : {folder_name, file}) {
    std::error_code ignored;
    if (log || !std::filesystem::is_symlink(name, ignored)) continue;
    throw UsageError(fmt::format("--log-dir: {} is a symbolic link; hint: remove it, or name another folder",
                                 name.string()));
  }
  errno = reason;
  return log;
}

}  // namespace

StreamLog::StreamLog(const std::filesystem::path& file, int live_fd, bool live, std::string prefix)
    : file_(file), fd_(open_log(file)), live_fd_(live_fd), live_(live), prefix_(std::move(prefix)) {
  if (fd_ ? !is_regular(fd_.get()) : errno == ENXIO) {  // ENXIO: a pipe without reader, or a socket
    throw UsageError(fmt::format("--log-dir: {} is no regular file; hint: remove it, or name another folder",
                                 file.string()));
  }
  if (!fd_) {
    throw UsageError(fmt::format("--log-dir: cannot write {}: {}; hint: name a folder that you may write",
                                 file.string(), std::strerror(errno)));
  }
  fcntl(fd_.get(), F_SETFL, O_APPEND);
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw UsageError(fmt::format("--log-dir: another job writes {} at this moment; hint: name another folder",
                                 file.string()));
  }
}

void StreamLog::begin(LiveOutput& output) {
  if (ftruncate(fd_.get(), 0) == 0) return;
  output.add(STDERR_FILENO,
             fmt::format("lockstep run: cannot empty {}: {}; this run follows the last in it\n",
                         file_.string(), std::strerror(errno)));
}

void StreamLog::feed(std::string_view bytes, LiveOutput& output) {
  write_file(bytes, output);
  splitter_.feed(bytes, [&](std::string_view line) { take(line, output); });
}

void StreamLog::finish(LiveOutput& output) {
  splitter_.finish([&](std::string_view line) { take(line, output); });
}

void StreamLog::mark(std::string_view line) {
  const std::string text = fmt::format("{}{}\n", in_line_ ? "\n" : "", line);
  in_line_ = false;
  [[maybe_unused]] const ssize_t written = write(fd_.get(), text.data(), text.size());
  last_lines_.clear();
}

void StreamLog::take(std::string_view line, LiveOutput& output) {
  const std::string_view shown = visible_part(line);
  last_lines_.emplace_back(shown.substr(0, kLastLineBytes));
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
  if (live_) output.add(live_fd_, fmt::format("{}{}\n", prefix_, shown));
}

void StreamLog::write_file(std::string_view bytes, LiveOutput& output) {
  if (!bytes.empty()) in_line_ = bytes.back() != '\n';
  while (fd_ && !bytes.empty()) {
    const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      // The job is worth more than its log: say so once and go on.
      output.add(STDERR_FILENO,
                 fmt::format("lockstep run: {} ends here: {}\n", file_.string(), std::strerror(errno)));
      fd_.reset();
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace lockstep::launch
