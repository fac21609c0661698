#include "train/data/file_bytes.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "launch/printable.h"
#include "lockstep/error.h"

namespace lockstep::train {

namespace fs = std::filesystem;

std::string shown(const fs::path& path) {
  constexpr size_t kMost = 300;
  return launch::printable(path.string(), kMost);
}

std::string read_bytes(const fs::path& file, uintmax_t most) {
  std::error_code failure;
  const fs::file_status status = fs::status(file, failure);
  if (status.type() == fs::file_type::not_found) {
    throw UsageError(fmt::format("{}: there is no such file; hint: check the path", shown(file)));
  }
  // A pipe or a device could go on for ever.
  if (!failure && !fs::is_regular_file(status)) {
    throw UsageError(fmt::format("{}: is no regular file", shown(file)));
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  const uintmax_t size = failure ? 0 : fs::file_size(file, failure);
  if (failure || !stream) {
    throw UsageError(fmt::format("{}: cannot be read: {}; hint: check its permissions", shown(file),
                                 failure ? failure.message() : std::strerror(errno)));
  }
  if (size > most) {
    throw UsageError(fmt::format("{}: has {} bytes; hint: at most {} are read", shown(file), size, most));
  }
  std::string bytes(size, '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(size));
  if (stream.gcount() != static_cast<std::streamsize>(size)) {
    throw UsageError(fmt::format("{}: ended after {} of {} bytes; hint: is it being written?", shown(file),
                                 stream.gcount(), size));
  }
  return bytes;
}

}  // namespace lockstep::train
