#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::train {

/// A path as an error may show it: file names of others may hold anything.
std::string shown(const std::filesystem::path& path);

/// All bytes of a regular file. Throws UsageError, naming it, if it cannot be read, is no regular file, or
/// has more than `most` bytes.
std::string read_bytes(const std::filesystem::path& file, uintmax_t most);

}  // namespace lockstep::train
