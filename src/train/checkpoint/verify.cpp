#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/error.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/store.h"
#include "train/checkpoint/strict_json.h"
#include "train/run/settings.h"

namespace lockstep::train {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostManifestBytes = uint64_t{16} << 20;

class Fault {
 public:
  explicit Fault(const fs::path& folder) : folder_(folder) {}

  [[noreturn]] void operator()(std::string_view file, std::string_view what) const {
    throw Error(fmt::format("checkpoint {}: {} {}", folder_.string(), file, what));
  }

 private:
  const fs::path& folder_;
};

void check_length(const Fault& fault, const Seal& seal, const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::symlink_status(path, failure);
  if (status.type() == fs::file_type::not_found) fault(seal.file, "is missing");
  if (failure) fault(seal.file, fmt::format("cannot be looked at: {}", failure.message()));
  if (!fs::is_regular_file(status)) fault(seal.file, "is not a regular file");
  const uint64_t bytes = fs::file_size(path, failure);
  if (failure) fault(seal.file, fmt::format("cannot be looked at: {}", failure.message()));
  if (bytes == seal.bytes) return;
  fault(seal.file, fmt::format("has {} bytes, {} than the {} of the manifest", bytes,
                               bytes < seal.bytes ? "shorter" : "longer", seal.bytes));
}

/// AdamW counts the steps as well, for each weight.
void check_optimizer(const Fault& fault, const Manifest& manifest, const fs::path& folder) {
  for (const Seal& seal : manifest.files) {
    if (!seal.file.starts_with("optimizer-")) continue;
    const SafetensorsFile file(folder / seal.file);
    for (const TensorEntry& tensor : file.header().tensors) {
      if (!tensor.name.ends_with(".step") || tensor.type != TensorType::kI64 || !tensor.shape.empty())
        continue;
      int64_t step = 0;
      std::memcpy(&step, file.bytes(tensor).data(), sizeof step);
      if (step == manifest.step) continue;
      fault(seal.file, fmt::format("{} is {}, the checkpoint is of step {}", shown_text(tensor.name), step,
                                   manifest.step));
    }
  }
}

/// Hashes are no proof: whoever writes another value can write its hash.
void check_state(const Fault& fault, const Manifest& manifest, const fs::path& folder) {
  const std::string name = "state.json";
  if (std::ranges::find(manifest.files, name, &Seal::file) == manifest.files.end()) return;
  const auto state = parse_strict(read_text(folder / name, kMostJsonBytes), (folder / name).string());
  const auto given = state.find("settings");
  if (given == state.end()) return;  // not of a run
  const auto step = state.find("step");
  if (step == state.end() || !step->is_number_integer() || *step != manifest.step) {
    fault(name,
          fmt::format("is of step {}, {} of step {}", step == state.end() ? "(none)" : shown_json(*step),
                      kManifestName, manifest.step));
  }
  const TrainSettings settings = parse_settings(given->dump(), (folder / name).string());
  const int64_t most = settings.steps > 0 ? settings.steps : kMostTrainSteps;
  if (manifest.step > most) fault(name, fmt::format("is of step {}, its run has {}", manifest.step, most));
  const auto samples = state.find("samples");
  if (samples != state.end() && *samples != manifest.step * settings.batch) {
    fault(name, fmt::format("has {} samples, {} steps of {} have {}", shown_json(*samples), manifest.step,
                            settings.batch, manifest.step * settings.batch));
  }
  check_optimizer(fault, manifest, folder);
}

}  // namespace

Manifest read_checkpoint(const fs::path& folder) {
  const Fault fault(folder);
  const std::vector<std::string> names = names_in(folder);
  if (!std::ranges::binary_search(names, kManifestName)) fault(kManifestName, "is missing");
  const fs::path file = folder / kManifestName;
  if (!fs::is_regular_file(fs::symlink_status(file))) fault(kManifestName, "is not a regular file");
  Manifest manifest = parse_manifest(read_text(file, kMostManifestBytes),
                                     fmt::format("checkpoint {}: {}", folder.string(), kManifestName));
  for (const Seal& seal : manifest.files) check_length(fault, seal, folder / seal.file);
  for (const std::string& name : names) {
    const bool is_listed = std::ranges::find(manifest.files, name, &Seal::file) != manifest.files.end();
    if (name != kManifestName && !is_listed) fault(shown_text(name), "is not in the manifest");
  }
  return manifest;
}

Manifest verify_checkpoint(const fs::path& folder) {
  const Fault fault(folder);
  Manifest manifest = read_checkpoint(folder);
  const auto step = step_of_name(folder.filename().string());
  if (step && *step != manifest.step) fault(kManifestName, fmt::format("is of step {}", manifest.step));
  for (const Seal& seal : manifest.files) {
    const Seal found = seal_of(folder / seal.file);
    // It may have changed since its length was looked at.
    if (found.bytes != seal.bytes) check_length(fault, seal, folder / seal.file);
    if (found == seal) continue;
    fault(seal.file, fmt::format("has the hash {:016x} instead of {:016x}: its bytes were altered",
                                 found.xxh3, seal.xxh3));
  }
  check_state(fault, manifest, folder);
  return manifest;
}

}  // namespace lockstep::train
