#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/checkpoint_folder.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/size.h"
#include "lockstep/error.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/torch_export.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string path;
  std::string out;
  bool force = false;
};

int run(const ExportOptions& options) {
  if (options.out.empty()) throw UsageError("--out is missing; hint: --out weights.pt");
  std::error_code ignored;
  if (fs::exists(options.out, ignored) && !options.force) {
    throw UsageError(fmt::format("--out {}: is there already; hint: --force replaces it", options.out));
  }
  check_writable("--out", options.out);
  const fs::path folder = find_checkpoint(options.path);
  const train::ModelWeights model(folder);
  std::vector<train::TensorData> tensors;
  for (const auto& weight : model.weights()) tensors.push_back(weight.tensor);
  train::write_torch_file(options.out, tensors);
  fmt::print("{}: {} tensors, {}, of {}\nopen it with torch.load(\"{}\", weights_only=True)\n", options.out,
             tensors.size(), bytes_text(static_cast<int64_t>(model.total_bytes())), folder.string(),
             options.out);
  return 0;
}

}  // namespace

Action define_checkpoint_export(Flags flags) {
  const auto options = std::make_shared<ExportOptions>();
  flags.word("path", options->path, "A checkpoint, or the folder of a run: then its newest whole one", true);
  flags.text("--out", options->out, "The file to write, for Python's torch.load", "FILE");
  flags.toggle("--force", options->force, "Replace a file that is there");
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace lockstep::cli
