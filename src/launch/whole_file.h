#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace lockstep::launch {

// The one place that renames a file over another. It replaces regular files and nothing else: a link is
// followed, to a target that may not exist yet; devices, pipes and open descriptors (/dev/stdout) are written
// into; folders are refused.

/// Writes `file` whole or not at all, also if power fails. Keeps the mode of a file that it replaces.
/// Waits up to 5 s for a reader of a pipe. Returns 0, or errno.
[[nodiscard]] int write_whole_file(const std::filesystem::path& file,
                                   std::span<const std::span<const std::byte>> pieces);
[[nodiscard]] int write_whole_file(const std::filesystem::path& file, std::string_view text);

/// What write_whole_file() would return, as far as that can be known before; changes nothing.
[[nodiscard]] int check_whole_file(const std::filesystem::path& file);

/// Whether a rename to `path` replaces a regular file, or nothing. False for a link.
bool may_replace(const std::filesystem::path& path);

}  // namespace lockstep::launch
