// Any text as the manifest of a checkpoint: a refusal, or a manifest that reads back and leads to no other
// folder.
#include "train/checkpoint/manifest.h"

#include "fuzz/fuzz.h"
#include "lockstep/error.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace train = lockstep::train;
  using lockstep::fuzz::require;
  train::Manifest manifest;
  try {
    manifest = train::parse_manifest({reinterpret_cast<const char*>(data), size}, "a manifest");
  } catch (const lockstep::Error& refusal) {
    lockstep::fuzz::require_readable(refusal);
    require(std::string_view(refusal.what()).starts_with("a manifest: "), "a refusal names the file");
    return 0;
  }
  for (const auto& seal : manifest.files) require(train::is_file_name(seal.file), "a file is in the folder");
  require(train::parse_manifest(train::manifest_json(manifest), "again") == manifest,
          "a manifest reads back to itself");
  return 0;
}
