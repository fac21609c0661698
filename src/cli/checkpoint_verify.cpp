#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/command_line.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/size.h"
#include "lockstep/error.h"
#include "train/checkpoint/resolve.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

/// Prints a line; returns whether the checkpoint is whole.
bool verify(const fs::path& folder) {
  try {
    const train::Manifest manifest = train::verify_checkpoint(folder);
    uint64_t bytes = 0;
    for (const train::Seal& seal : manifest.files) bytes += seal.bytes;
    fmt::print("whole      {}: step {}, {} files, {}\n", folder.string(), manifest.step,
               manifest.files.size() + 1, bytes_text(static_cast<int64_t>(bytes)));
    return true;
  } catch (const Error& error) {
    fmt::print("not whole  {}\n", error.what());
    return false;
  }
}

int run(const fs::path& given) {
  std::vector<train::Checkpoint> checkpoints;
  if (train::is_checkpoint(given)) {
    checkpoints.push_back({.folder = given});
  } else {
    checkpoints = train::find_store(given).checkpoints();
  }
  size_t whole = 0;
  for (const train::Checkpoint& found : checkpoints) whole += verify(found.folder) ? 1 : 0;
  return whole == checkpoints.size() ? 0 : kExitFailure;
}

}  // namespace

Action define_checkpoint_verify(Flags flags) {
  const auto path = std::make_shared<std::string>();
  flags.word("path", *path, "A checkpoint, or the folder of a run: then all that it has", true);
  return [path](const Invocation&) { return run(*path); };
}

}  // namespace lockstep::cli
