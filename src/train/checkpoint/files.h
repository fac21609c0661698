#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::train {

// Files and folders that survive a loss of power: what the checkpoints are made with. Every failure is an
// Error with the name and the system's reason; a full disk gets a hint.

/// An open file or folder.
class File {
 public:
  /// `flags` as in open(2).
  File(std::filesystem::path path, int flags);
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  int fd() const { return fd_; }
  /// How long it is; throws Error if it is not a regular file.
  uint64_t bytes() const;
  /// Reads into `room` until it is full or the file ends; returns how much.
  size_t read(std::span<std::byte> room);
  /// Writes all of `parts`, whose contents are used up.
  void write(std::span<iovec> parts);
  /// Returns when the disk has it.
  void sync();
  /// As the destructor, but tells of what some file systems only say now.
  void close();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

/// The whole of a file of at most `most_bytes`; throws Error if it has more.
std::string read_text(const std::filesystem::path& file, uint64_t most_bytes);

/// Returns when the disk has the names in `folder`.
void sync_folder(const std::filesystem::path& folder);

/// Makes `folder`, and those above it that are missing; the disk has their names.
void make_folders(const std::filesystem::path& folder);

/// Both in one folder; a regular file or an empty folder at `to` is replaced, anything else refused. The disk
/// may not have it yet: see sync_folder().
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// Removes a file, or a folder with all it holds; nothing if there is none.
void remove_tree(const std::filesystem::path& path);

/// The names in a folder, sorted; throws Error if it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace lockstep::train
