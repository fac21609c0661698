#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "lab/disk.h"

namespace lab {

namespace {

[[noreturn]] void fail(const char* what, const std::string& name) {
  throw std::runtime_error(fmt::format("{} '{}': {}", what, name, std::strerror(errno)));
}

}  // namespace

FolderDisk::FolderDisk(std::string folder, size_t kill_after)
    : folder_(std::move(folder)), points_left_(kill_after) {}

FolderDisk::~FolderDisk() {
  for (const auto& [name, fd] : open_) ::close(fd);
}

void FolderDisk::point() {
  if (points_left_ == 0) raise(SIGKILL);
  if (points_left_ != kNever) --points_left_;
}

std::string FolderDisk::path(const std::string& name) const {
  return folder_ + "/" + name;
}

int FolderDisk::open_fd(const std::string& name, const char* what) const {
  const auto found = open_.find(name);
  if (found != open_.end()) return found->second;
  throw std::runtime_error(
      fmt::format("{}: '{}' is not open; create() opens a file, under that name", what, name));
}

bool FolderDisk::exists(const std::string& name) const {
  struct stat status {};
  return stat(path(name).c_str(), &status) == 0;
}

std::optional<Bytes> FolderDisk::read(const std::string& name) const {
  const int fd = open(path(name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  Bytes bytes;
  std::byte room[4096];
  for (ssize_t count = 0; (count = ::read(fd, room, sizeof room)) > 0;)
    bytes.insert(bytes.end(), room, room + count);
  ::close(fd);
  return bytes;
}

void FolderDisk::create(const std::string& name) {
  point();
  const int fd = open(path(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("create", name);
  if (const auto found = open_.find(name); found != open_.end()) ::close(found->second);
  open_[name] = fd;
}

void FolderDisk::append(const std::string& name, std::span<const std::byte> bytes) {
  constexpr size_t kPiece = 16;
  const int fd = open_fd(name, "append");
  do {
    point();
    const auto piece = bytes.first(std::min(kPiece, bytes.size()));
    if (write(fd, piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) fail("append", name);
    bytes = bytes.subspan(piece.size());
  } while (!bytes.empty());
}

void FolderDisk::fsync(const std::string& name) {
  point();
  if (::fsync(open_fd(name, "fsync")) != 0) fail("fsync", name);
}

void FolderDisk::close(const std::string& name) {
  point();
  ::close(open_fd(name, "close"));
  open_.erase(name);
}

void FolderDisk::rename(const std::string& from, const std::string& to) {
  point();
  if (std::rename(path(from).c_str(), path(to).c_str()) != 0) fail("rename", from);
  if (auto moved = open_.extract(from)) {
    moved.key() = to;
    open_.insert(std::move(moved));
  }
}

void FolderDisk::remove(const std::string& name) {
  point();
  if (unlink(path(name).c_str()) != 0) fail("remove", name);
}

void FolderDisk::fsync_folder() {
  point();
  const int fd = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || ::fsync(fd) != 0) fail("fsync", folder_);
  ::close(fd);
}

}  // namespace lab
