#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace lockstep::train {

/// A file that grows by whole records and has one writer at a time.
class AppendFile {
 public:
  /// Opens `file`, or makes it. Throws Error if it cannot be written, or if another process or object writes
  /// it at this moment.
  explicit AppendFile(std::filesystem::path file);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  const std::filesystem::path& path() const { return file_; }

  /// Cuts away what stands behind the first `bytes` bytes. Throws Error.
  void cut(uint64_t bytes);

  /// One write() of the whole record, so that it survives the end of this process, however it ends. Throws
  /// Error if it does not go in; what went in of it (the disk is full) is cut away again.
  void append(std::string_view record);

 private:
  std::filesystem::path file_;
  int fd_;
};

}  // namespace lockstep::train
