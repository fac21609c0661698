#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::train {

struct FileHash {
  uint64_t bytes;
  std::string sha256;  ///< In hexadecimal, lower case.
};

/// Size and SHA-256 of a file; nothing if it is no regular file or cannot be read. Reads it in pieces.
std::optional<FileHash> hash_of(const std::filesystem::path& file);

}  // namespace lockstep::train
