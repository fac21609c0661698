#pragma once

#include <filesystem>
#include <string_view>

#include "lockstep/trace/span.h"

namespace lockstep::trace {

/// Writes a file whole or not at all: under another name first. A device or pipe is written into. Throws
/// Error with path and reason.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Reads a file that to_json() made, or a folder's rank_<k>.json, merged. Throws UsageError with the path.
Trace read(const std::filesystem::path& path);

}  // namespace lockstep::trace
