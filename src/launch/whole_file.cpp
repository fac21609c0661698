#include "launch/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <optional>

#include "launch/unique_fd.h"

namespace lockstep::launch {

namespace {

namespace fs = std::filesystem;
using Pieces = std::span<const std::span<const std::byte>>;

constexpr int kMostLinks = 40;            // as the kernel follows
constexpr int kReaderPatience_ms = 5000;  // for somebody to open the other end of a pipe

/// What links lead to, there or not, if a rename may put a new file in its place; otherwise nothing.
std::optional<fs::path> replaceable(fs::path path) {
  std::error_code ignored;
  for (int links = 0; fs::is_symlink(path, ignored) && links < kMostLinks; ++links) {
    const fs::path folder = fs::canonical(fs::absolute(path).parent_path(), ignored);
    if (folder.string().starts_with("/proc/")) return std::nullopt;  // a descriptor of some process
    path = folder / fs::read_symlink(path, ignored);
  }
  if (may_replace(path)) return path;
  return std::nullopt;
}

/// Opens what is there, and not regular.
int open_in_place(const fs::path& file) {
  for (int waited_ms = 0;; waited_ms += 10) {
    const int fd = open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    std::error_code ignored;
    if (fd >= 0 || errno != ENXIO || waited_ms >= kReaderPatience_ms) return fd;
    if (!fs::is_fifo(file, ignored)) return errno = ENXIO, -1;
    poll(nullptr, 0, 10);
  }
}

int write_all(int fd, Pieces pieces) {
  for (auto piece : pieces) {
    while (!piece.empty()) {
      const ssize_t count = write(fd, piece.data(), piece.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno;
      piece = piece.subspan(static_cast<size_t>(count));
    }
  }
  return 0;
}

int close_checked(UniqueFd& fd) {
  return close(fd.release()) == 0 || errno == EINTR ? 0 : errno;
}

int write_in_place(const fs::path& file, Pieces pieces) {
  UniqueFd fd(open_in_place(file));
  if (!fd) return errno;
  const int reason = write_all(fd.get(), pieces);
  return reason != 0 ? reason : close_checked(fd);
}

/// Makes a new file beside `file`, of a name that nobody else uses: two that write the same file leave one of
/// the two, not a mixture.
int make_partial(const fs::path& file, std::string& partial, UniqueFd& fd) {
  static std::atomic<int> number = 0;
  do {
    partial = fmt::format("{}.{}.{}.partial", file.string(), getpid(), ++number);
    fd.reset(open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  } while (!fd && errno == EEXIST);
  return fd ? 0 : errno;
}

int sync_parent(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd && fsync(fd.get()) == 0 ? 0 : errno;
}

int replace(const fs::path& file, Pieces pieces) {
  std::string partial;
  UniqueFd fd;
  if (const int reason = make_partial(file, partial, fd)) return reason;
  struct stat before {};
  if (stat(file.c_str(), &before) == 0) fchmod(fd.get(), before.st_mode & 0777);
  int reason = write_all(fd.get(), pieces);
  if (reason == 0 && fsync(fd.get()) != 0) reason = errno;
  if (const int closed = close_checked(fd); reason == 0) reason = closed;
  if (reason == 0 && std::rename(partial.c_str(), file.c_str()) != 0) reason = errno;
  if (reason == 0) return sync_parent(file);
  std::remove(partial.c_str());
  return reason;
}

}  // namespace

bool may_replace(const fs::path& path) {
  std::error_code ignored;
  const auto type = fs::symlink_status(path, ignored).type();
  return type == fs::file_type::regular || type == fs::file_type::not_found;
}

int write_whole_file(const fs::path& file, Pieces pieces) {
  const auto target = replaceable(file);
  return target ? replace(*target, pieces) : write_in_place(file, pieces);
}

int write_whole_file(const fs::path& file, std::string_view text) {
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(text))};
  return write_whole_file(file, pieces);
}

int check_whole_file(const fs::path& file) {
  const auto target = replaceable(file);
  if (!target) {  // not opened: whoever reads a pipe would take the closing for its end
    std::error_code ignored;
    if (fs::is_directory(file, ignored)) return EISDIR;
    return access(file.c_str(), W_OK) == 0 ? 0 : errno;
  }
  std::string partial;
  UniqueFd fd;
  const int reason = make_partial(*target, partial, fd);
  if (reason == 0) std::remove(partial.c_str());
  return reason;
}

}  // namespace lockstep::launch
