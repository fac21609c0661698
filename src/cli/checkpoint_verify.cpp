#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/size.h"
#include "lockstep/error.h"
#include "train/checkpoint/resolve.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

struct VerifyOptions {
  std::string path;
  JsonOutput json;
};

/// Prints a line, unless standard output is for JSON; returns what the line says.
nlohmann::json verify(const fs::path& folder, bool prints) {
  try {
    const train::Manifest manifest = train::verify_checkpoint(folder);
    uint64_t bytes = 0;
    for (const train::Seal& seal : manifest.files) bytes += seal.bytes;
    const size_t files = manifest.files.size() + 1;
    if (prints) {
      fmt::print("whole      {}: step {}, {} files, {}\n", folder.string(), manifest.step, files,
                 bytes_text(static_cast<int64_t>(bytes)));
    }
    return {{"folder", folder.string()},
            {"whole", true},
            {"step", manifest.step},
            {"files", files},
            {"bytes", bytes}};
  } catch (const Error& error) {
    if (prints) fmt::print("not whole  {}\n", error.what());
    return {{"folder", folder.string()}, {"whole", false}, {"problem", error.what()}};
  }
}

int run(const VerifyOptions& options) {
  std::vector<train::Checkpoint> checkpoints;
  if (train::is_checkpoint(options.path)) {
    checkpoints.push_back({.folder = options.path});
  } else {
    checkpoints = train::find_store(options.path).checkpoints();
  }
  bool all_whole = true;
  auto rows = nlohmann::json::array();
  for (const train::Checkpoint& found : checkpoints) {
    rows.push_back(verify(found.folder, options.json.prints_text()));
    all_whole = all_whole && rows.back()["whole"];
  }
  options.json.write({{"checkpoints", std::move(rows)}, {"whole", all_whole}});
  return all_whole ? 0 : kExitFailure;
}

}  // namespace

Action define_checkpoint_verify(Flags flags) {
  const auto options = std::make_shared<VerifyOptions>();
  flags.word("path", options->path, "A checkpoint, or the folder of a run: then all that it has", true);
  options->json.add_to(flags);
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace lockstep::cli
