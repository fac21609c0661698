#include "train/checkpoint/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>

#include "lockstep/error.h"
#include "train/checkpoint/files.h"

namespace lockstep::train {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kLatest = "LATEST";
constexpr std::string_view kLatestTemporary = ".LATEST.tmp";
// What a checkpoint that is not in its place is called: ".step_00000200" and one of these.
constexpr std::string_view kTemporary = ".tmp";  // being written, or replaced by exchange
constexpr std::string_view kAside = ".old";      // about to be replaced; counts if its place is empty
constexpr std::string_view kGone = ".gone";      // being removed

std::string hidden_name(int64_t step, std::string_view ending) {
  return fmt::format(".{}{}", checkpoint_name(step), ending);
}

/// The step of such a name; nothing if it is another's.
std::optional<int64_t> step_of_hidden(std::string_view name, std::string_view ending) {
  if (!name.starts_with('.') || !name.ends_with(ending)) return std::nullopt;
  return step_of_name(name.substr(1, name.size() - 1 - ending.size()));
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// Whether two names changed places at once; false if this file system cannot do it.
bool exchange(const fs::path& one, const fs::path& other) {
  if (renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  throw Error(fmt::format("checkpoint: cannot put in place {}: {}", other.string(),
                          std::error_code(errno, std::generic_category()).message()));
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

std::optional<int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool is_number = error == std::errc() && step >= 0 && step <= kMostSteps;
  if (!is_number || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

CheckpointStore::CheckpointStore(fs::path folder) : folder_(std::move(folder)) {}

fs::path CheckpointStore::temporary(int64_t step) const {
  return folder_ / hidden_name(step, kTemporary);
}

fs::path CheckpointStore::folder_of(int64_t step) const {
  return folder_ / checkpoint_name(step);
}

fs::path CheckpointStore::aside(int64_t step) const {
  return folder_ / hidden_name(step, kAside);
}

fs::path CheckpointStore::begin(int64_t step) const {
  if (step < 0 || step > kMostSteps) {
    throw UsageError(fmt::format("checkpoint: step {} is not between 0 and {}", step, kMostSteps));
  }
  remove_tree(temporary(step));
  make_folders(temporary(step));
  return temporary(step);
}

fs::path CheckpointStore::commit(int64_t step, const std::vector<Seal>& seals, int64_t keep) const {
  if (keep < 1) throw UsageError(fmt::format("checkpoint: keep {} is less than 1", keep));
  check_files(step, seals);
  const std::string manifest = manifest_json({.step = step, .files = seals});
  write_sealed(temporary(step), std::string(kManifestName), {std::as_bytes(std::span(manifest))});
  sync_folder(temporary(step));
  put_in_place(step);
  write_latest(step);
  remove_earlier(step, keep);
  return folder_of(step);
}

/// A seal that was forgotten, or belongs to another file, would make a checkpoint that nobody can load.
void CheckpointStore::check_files(int64_t step, const std::vector<Seal>& seals) const {
  const fs::path folder = temporary(step);
  std::map<std::string, uint64_t> sealed;
  for (const Seal& seal : seals) sealed[seal.file] = seal.bytes;
  for (const std::string& name : names_in(folder)) {
    const auto found = sealed.find(name);
    if (found == sealed.end()) {
      throw UsageError(fmt::format("checkpoint: {} has no seal", (folder / name).string()));
    }
    const uint64_t bytes = File(folder / name, O_RDONLY).bytes();
    if (bytes != found->second) {
      throw UsageError(fmt::format("checkpoint: {} has {} bytes, its seal says {}", (folder / name).string(),
                                   bytes, found->second));
    }
    sealed.erase(found);
  }
  if (sealed.empty()) return;
  throw UsageError(fmt::format("checkpoint: {} is missing", (folder / sealed.begin()->first).string()));
}

void CheckpointStore::put_in_place(int64_t step) const {
  if (!is_folder(folder_of(step))) {
    rename_file(temporary(step), folder_of(step));
    sync_folder(folder_);
  } else if (exchange(temporary(step), folder_of(step))) {
    sync_folder(folder_);
    remove_tree(temporary(step));
  } else {
    // Between the two renames its place is empty; then the one aside counts.
    remove_tree(aside(step));
    rename_file(folder_of(step), aside(step));
    rename_file(temporary(step), folder_of(step));
    sync_folder(folder_);
  }
  // The one aside, here or of a run that died. The new one is on the disk by now.
  remove_tree(aside(step));
}

void CheckpointStore::write_latest(int64_t step) const {
  const std::string text = checkpoint_name(step) + "\n";
  remove_tree(folder_ / kLatestTemporary);
  write_new_file(folder_ / kLatestTemporary, {std::as_bytes(std::span(text))});
  rename_file(folder_ / kLatestTemporary, folder_ / kLatest);
  sync_folder(folder_);
}

void CheckpointStore::remove_earlier(int64_t step, int64_t keep) const {
  std::vector<Checkpoint> earlier = checkpoints();
  std::erase_if(earlier, [&](const Checkpoint& found) { return found.step >= step; });
  std::ranges::reverse(earlier);
  int64_t kept = 1;
  for (const Checkpoint& found : earlier) {
    bool is_whole = kept < keep;
    try {
      if (is_whole) read_checkpoint(found.folder);
    } catch (const Error&) {
      is_whole = false;
    }
    if (is_whole) {
      ++kept;
      continue;
    }
    // Half removed it would look like a torn one.
    const fs::path gone = folder_ / hidden_name(found.step, kGone);
    remove_tree(gone);
    rename_file(found.folder, gone);
    remove_tree(gone);
  }
}

void CheckpointStore::abandon(int64_t step) const noexcept {
  try {
    remove_tree(temporary(step));
  } catch (const std::exception&) {  // remove_leftovers() of the next run will
  }
}

void CheckpointStore::remove_leftovers() const {
  if (!is_folder(folder_)) return;
  for (const std::string& name : names_in(folder_)) {
    const auto old = step_of_hidden(name, kAside);
    if (old && !is_folder(folder_of(*old))) {
      rename_file(folder_ / name, folder_of(*old));
      sync_folder(folder_);
    } else if (old || step_of_hidden(name, kTemporary) || step_of_hidden(name, kGone) ||
               name == kLatestTemporary) {
      remove_tree(folder_ / name);
    }
  }
}

std::vector<Checkpoint> CheckpointStore::checkpoints() const {
  std::error_code failure;
  // One that cannot be read is not one without checkpoints: that would start a run anew.
  if (fs::status(folder_, failure).type() == fs::file_type::not_found) return {};
  std::map<int64_t, fs::path> found;
  for (const std::string& name : names_in(folder_)) {
    if (!is_folder(folder_ / name)) continue;
    if (const auto step = step_of_name(name)) found[*step] = folder_ / name;
    if (const auto step = step_of_hidden(name, kAside)) found.try_emplace(*step, folder_ / name);
  }
  std::vector<Checkpoint> all;
  for (const auto& [step, path] : found) all.push_back({.folder = path, .step = step});
  return all;
}

std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> all;
  for (const Checkpoint& found : checkpoints()) all.push_back(found.step);
  return all;
}

std::optional<int64_t> CheckpointStore::latest_step() const {
  try {
    const std::string text = read_text(folder_ / kLatest, 100);
    return step_of_name(std::string_view(text).substr(0, text.find('\n')));
  } catch (const Error&) {  // for people: one that is missing or altered says nothing
    return std::nullopt;
  }
}

CheckpointStore::Found CheckpointStore::find(int64_t at_most) const {
  Found answer;
  std::vector<Checkpoint> candidates = checkpoints();
  const auto latest = latest_step();
  if (latest && *latest <= at_most &&
      std::ranges::find(candidates, *latest, &Checkpoint::step) == candidates.end()) {
    answer.refused.push_back(
        fmt::format("checkpoint {}: is missing, {} names it", folder_of(*latest).string(), kLatest));
  }
  std::ranges::reverse(candidates);
  for (const Checkpoint& candidate : candidates) {
    if (candidate.step > at_most) continue;
    try {
      const Manifest manifest = verify_checkpoint(candidate.folder);
      if (manifest.step != candidate.step) {
        throw Error(fmt::format("checkpoint {}: {} is of step {}", candidate.folder.string(), kManifestName,
                                manifest.step));
      }
      answer.checkpoint = candidate;
      break;
    } catch (const Error& error) {
      answer.refused.emplace_back(error.what());
    }
  }
  return answer;
}

}  // namespace lockstep::train
