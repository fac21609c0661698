#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/seal.h"

namespace lockstep::train {

/// The file that names all others of a checkpoint. It is written last.
inline constexpr std::string_view kManifestName = "manifest.json";

/// More steps than any run has.
inline constexpr int64_t kMostSteps = 999'999'999'999;

/// What a checkpoint consists of.
struct Manifest {
  int64_t step = 0;
  std::vector<Seal> files;  ///< By name; the manifest itself is not among them.

  bool operator==(const Manifest&) const = default;
};

/// {"format":1,"step":200,"files":{"state.json":{"bytes":17,"xxh3":"0123456789abcdef"}}}. Throws UsageError
/// if a file is there twice, has no file name, or is the manifest itself.
std::string manifest_json(const Manifest& manifest);

/// Reads that back, and nothing else; throws Error that starts with `origin`.
Manifest parse_manifest(std::string_view text, const std::string& origin);

/// The manifest of a checkpoint, by which every file is there with the right length, and no other file is.
/// Reads no file but the manifest. Throws Error that names the folder, the file and what differs.
Manifest read_checkpoint(const std::filesystem::path& folder);

/// The same, and every file has the bytes that were written: reads all of it. If the folder is named like a
/// checkpoint, it is the one of that step, and so is its state.json, if it has one, whose values are
/// possible.
Manifest verify_checkpoint(const std::filesystem::path& folder);

}  // namespace lockstep::train
