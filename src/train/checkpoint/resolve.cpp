#include "train/checkpoint/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/error.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/strict_json.h"

namespace lockstep::train {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNames = 5;

/// What a folder holds, for an error.
std::string contents(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  if (names.empty()) return "nothing";
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
    text += (i == 0 ? "" : ", ") + shown_text(names[i]);
  }
  if (names.size() > kMostNames) text += fmt::format(" and {} more", names.size() - kMostNames);
  return text;
}

void check_folder(const fs::path& given) {
  std::error_code failure;
  if (fs::is_directory(given, failure)) return;
  const bool is_there = fs::exists(given, failure);
  throw UsageError(fmt::format("{}: {}; hint: name a run's folder, its folder checkpoints, or one in it",
                               given.string(),
                               failure    ? failure.message()
                               : is_there ? "is no folder"
                                          : "there is no such folder"));
}

}  // namespace

bool is_checkpoint(const fs::path& folder) {
  check_folder(folder);
  std::error_code ignored;
  // "a/step_00000200/" has no last name of its own.
  const fs::path path = folder.has_filename() ? folder : folder.parent_path();
  return step_of_name(path.filename().string()) || fs::exists(folder / kManifestName, ignored);
}

CheckpointStore find_store(const fs::path& given) {
  check_folder(given);
  for (const fs::path& folder : {given / "checkpoints", given}) {
    CheckpointStore store(folder);
    if (!store.checkpoints().empty()) return store;
  }
  throw UsageError(fmt::format("{}: holds no checkpoint, found {}; hint: a run's folder holds checkpoints/{}",
                               given.string(), contents(given), checkpoint_name(200)));
}

fs::path resolve_checkpoint(const fs::path& given, std::vector<std::string>* skipped) {
  if (is_checkpoint(given)) {
    verify_checkpoint(given);
    return given;
  }
  const CheckpointStore::Found found = find_store(given).find();
  if (skipped != nullptr) *skipped = found.refused;
  if (found.checkpoint) return found.checkpoint->folder;
  throw Error(
      fmt::format("{}: holds no whole checkpoint:\n  {}", given.string(), fmt::join(found.refused, "\n  ")));
}

}  // namespace lockstep::train
