#include "train/run/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::train {

namespace {

[[noreturn]] void fail(const std::filesystem::path& file, int reason) {
  const char* hint = "name a folder that you may write";
  if (reason == ENOSPC || reason == EDQUOT) hint = "its disk is full: make room there";
  if (reason == ELOOP) hint = "it is a symbolic link: remove it";
  if (reason == EFBIG) hint = "ulimit -f bounds the size of files";
  throw Error(fmt::format("cannot write {}: {}; hint: {}", file.string(), std::strerror(reason), hint));
}

int open_alone(const std::filesystem::path& file) {
  // A pipe in the place of a file must not make us wait, nor a link lead us into another file.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
  const int fd = open(file.c_str(), kFlags, 0644);
  if (fd < 0) fail(file, errno);
  // A file system without locks is no reason to refuse.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
  close(fd);
  throw Error(fmt::format("cannot write {}: another run writes it at this moment; hint: name another folder",
                          file.string()));
}

uint64_t size_of(int fd, const std::filesystem::path& file) {
  struct stat status {};
  if (fstat(fd, &status) != 0) fail(file, errno);
  return static_cast<uint64_t>(status.st_size);
}

}  // namespace

AppendFile::AppendFile(std::filesystem::path file) : file_(std::move(file)), fd_(open_alone(file_)) {}

AppendFile::~AppendFile() {
  if (fd_ >= 0) close(fd_);
}

void AppendFile::cut(uint64_t bytes) {
  if (size_of(fd_, file_) <= bytes) return;
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) fail(file_, errno);
}

void AppendFile::append(std::string_view record) {
  const uint64_t before = size_of(fd_, file_);
  while (!record.empty()) {
    const ssize_t written = write(fd_, record.data(), record.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int reason = errno;
      // Half a record that cannot be cut away must stay the last.
      if (size_of(fd_, file_) != before && ftruncate(fd_, static_cast<off_t>(before)) != 0) {
        close(std::exchange(fd_, -1));
      }
      fail(file_, reason);
    }
    record.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace lockstep::train
