#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/checkpoint_folder.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/size.h"
#include "launch/printable.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/strict_json.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;
using train::ModelWeights;

constexpr uint64_t kMostStateBytes = uint64_t{16} << 20;

struct ShowOptions {
  std::string path;
  JsonOutput json;
};

/// What a checkpoint tells of itself.
struct Contents {
  fs::path folder;
  train::Manifest manifest;
  ModelWeights model;
  nlohmann::json state;  ///< Numbers and texts at the top of state.json.
};

nlohmann::json state_of(const fs::path& folder) {
  auto state = nlohmann::json::object();
  const fs::path file = folder / "state.json";
  if (!fs::exists(file)) return state;
  const nlohmann::json document = train::parse_strict(train::read_text(file, kMostStateBytes), file.string());
  for (const auto& [key, value] : document.items()) {
    if (value.is_number() || value.is_string()) state[key] = value;
  }
  return state;
}

Contents read_contents(const std::string& path) {
  const fs::path folder = find_checkpoint(path);
  return {.folder = folder,
          .manifest = train::read_checkpoint(folder),
          .model = ModelWeights(folder),
          .state = state_of(folder)};
}

uint64_t total_bytes(const train::Manifest& manifest) {
  uint64_t bytes = 0;
  for (const train::Seal& seal : manifest.files) bytes += seal.bytes;
  return bytes;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void print_weights(const std::vector<ModelWeights::Weight>& weights) {
  size_t name_width = 4;
  size_t shape_width = 5;
  for (const auto& [tensor, file] : weights) {
    name_width = std::max(name_width, launch::printable(tensor.name).size());
    shape_width = std::max(shape_width, shape_text(tensor.shape).size());
  }
  fmt::print("{:<{}}  type  {:<{}}  file\n", "name", name_width, "shape", shape_width);
  for (const auto& [tensor, file] : weights) {
    fmt::print("{:<{}}  {:<4}  {:<{}}  {}\n", launch::printable(tensor.name), name_width,
               train::name(tensor.type), shape_text(tensor.shape), shape_width, file);
  }
}

void print(const Contents& contents) {
  const auto row = [](const std::string& name, const std::string& value) {
    fmt::print("{:<8} {}\n", name, value);
  };
  row("step", fmt::format("{}", contents.manifest.step));
  row("where", contents.folder.string());
  row("size", fmt::format("{} in {} files", bytes_text(static_cast<int64_t>(total_bytes(contents.manifest))),
                          contents.manifest.files.size() + 1));
  row("weights",
      fmt::format("{} in {} tensors", bytes_text(static_cast<int64_t>(contents.model.total_bytes())),
                  contents.model.weights().size()));
  if (!contents.state.empty()) fmt::print("\n");
  for (const auto& [key, value] : contents.state.items()) {
    fmt::print("{:<20} {}\n", launch::printable(key), train::shown_json(value));
  }
  fmt::print("\n");
  print_weights(contents.model.weights());
}

nlohmann::json to_json(const Contents& contents) {
  auto tensors = nlohmann::json::array();
  for (const auto& [tensor, file] : contents.model.weights()) {
    tensors.push_back(
        {{"name", tensor.name}, {"type", train::name(tensor.type)}, {"shape", tensor.shape}, {"file", file}});
  }
  auto files = nlohmann::json::object();
  for (const train::Seal& seal : contents.manifest.files) files[seal.file] = seal.bytes;
  return {{"step", contents.manifest.step},
          {"folder", contents.folder.string()},
          {"bytes", total_bytes(contents.manifest)},
          {"files", std::move(files)},
          {"weight_bytes", contents.model.total_bytes()},
          {"tensors", std::move(tensors)},
          {"state", contents.state}};
}

}  // namespace

Action define_checkpoint_show(Flags flags) {
  const auto options = std::make_shared<ShowOptions>();
  flags.word("path", options->path, "A checkpoint, or the folder of a run: then its newest whole one", true);
  options->json.add_to(flags);
  return [options](const Invocation&) {
    const Contents contents = read_contents(options->path);
    if (options->json.prints_text()) print(contents);
    options->json.write(to_json(contents));
    return 0;
  };
}

}  // namespace lockstep::cli
