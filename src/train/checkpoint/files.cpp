#include "train/checkpoint/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "launch/whole_file.h"
#include "lockstep/error.h"

namespace lockstep::train {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(std::string_view what, const fs::path& path, const std::error_code& reason) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::string text = fmt::format("cannot {} {}: {}", what, path.string(), reason.message());
  if (reason == std::errc::permission_denied || reason == std::errc::read_only_file_system ||
      reason == std::errc::operation_not_permitted) {
    text += fmt::format("; hint: look who may read and write in {}", folder.string());
  }
  if (reason == std::errc::no_space_on_device || reason == std::error_code(EDQUOT, std::generic_category())) {
    text +=
        fmt::format("; hint: make room on the disk of {}; the checkpoints before are whole", folder.string());
  }
  throw Error(text);
}

[[noreturn]] void fail(std::string_view what, const fs::path& path) {
  fail(what, path, std::error_code(errno, std::generic_category()));
}

}  // namespace

File::File(fs::path path, int flags) : path_(std::move(path)) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  do {
    // A pipe in the place of a file must not make us wait.
    fd_ = open(path_.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644);
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) fail(writes ? "make" : "open", path_);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

uint64_t File::bytes() const {
  struct stat status {};
  if (fstat(fd_, &status) != 0) fail("look at", path_);
  if (!S_ISREG(status.st_mode)) throw Error(fmt::format("{} is not a regular file", path_.string()));
  return static_cast<uint64_t>(status.st_size);
}

size_t File::read(std::span<std::byte> room) {
  size_t done = 0;
  while (done < room.size()) {
    const ssize_t count = ::read(fd_, room.data() + done, room.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path_);
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

void File::write(std::span<iovec> parts) {
  while (!parts.empty()) {
    if (parts.front().iov_len == 0) {
      parts = parts.subspan(1);
      continue;
    }
    const ssize_t count = writev(fd_, parts.data(), static_cast<int>(parts.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write", path_);
    auto done = static_cast<size_t>(count);
    for (iovec& part : parts) {
      const size_t taken = std::min(done, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + taken;
      part.iov_len -= taken;
      done -= taken;
    }
  }
}

void File::sync() {
  int result = 0;
  do {
    result = fsync(fd_);
  } while (result != 0 && errno == EINTR);
  if (result != 0) fail("sync", path_);
}

void File::close() {
  // Even a close that fails has closed, and an interrupted one has not failed.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) fail("close", path_);
}

std::string read_text(const fs::path& path, uint64_t most_bytes) {
  File file(path, O_RDONLY);
  const uint64_t bytes = file.bytes();
  if (bytes > most_bytes) {
    throw Error(fmt::format("{} has {} bytes, more than {}", path.string(), bytes, most_bytes));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  text.resize(file.read(std::as_writable_bytes(std::span(text))));
  return text;
}

void sync_folder(const fs::path& folder) {
  File(folder, O_RDONLY | O_DIRECTORY).sync();
}

void make_folders(const fs::path& folder) {
  const fs::path path = folder.lexically_normal();
  std::error_code ignored;  // mkdir() says what is wrong
  if (path.empty() || fs::is_directory(path, ignored)) return;
  const fs::path name = path.has_filename() ? path : path.parent_path();  // "a/" is "a"
  const fs::path parent = name.has_parent_path() ? name.parent_path() : fs::path(".");
  make_folders(parent);
  if (mkdir(name.c_str(), 0755) != 0 && errno != EEXIST) fail("make the folder", name);
  sync_folder(parent);
}

void rename_file(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  if (!launch::may_replace(to) && !fs::is_directory(fs::symlink_status(to, ignored))) {
    throw Error(
        fmt::format("checkpoint: cannot put in place {}: something that is not a regular file has this "
                    "name; hint: move it away",
                    to.string()));
  }
  if (std::rename(from.c_str(), to.c_str()) != 0) fail("put in place", to);
}

void remove_tree(const fs::path& path) {
  std::error_code failure;
  fs::remove_all(path, failure);
  if (failure) fail("remove", path, failure);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::error_code failure;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    names.push_back(entry->path().filename().string());
  }
  if (failure) fail("list", folder, failure);
  std::ranges::sort(names);
  return names;
}

}  // namespace lockstep::train
