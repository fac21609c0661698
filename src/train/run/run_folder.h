#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/train/data/tokenizer.h"
#include "lockstep/train/models/transformer_config.h"
#include "train/data/language.h"
#include "train/run/settings.h"

namespace lockstep::train {

using Variables = std::map<std::string, std::string>;

/// What `lockstep train` was asked for.
struct RunRequest {
  std::filesystem::path folder;
  std::string config_file;  ///< "": the built-in config.
  bool resume = false;
  GivenSettings given;
};

/// A run's folder, and what it says.
struct Run {
  std::filesystem::path folder;
  TrainSettings settings;
  TransformerConfig config;            ///< Of a language task.
  std::optional<Tokenizer> tokenizer;  ///< Of a language task.

  bool is_mnist() const { return settings.data == "mnist"; }
  int64_t microbatches() const;
  std::filesystem::path checkpoints() const { return folder / "checkpoints"; }
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
};

/// Layers that mnist's classifier can be cut into.
constexpr int64_t kClassifierLayers = 5;

/// Makes the folder of a new run, or of one that goes on brings it up to date: config.json, tokenizer.json
/// and, last, run.json. Fetches data that are named. Throws UsageError for what cannot be trained, before the
/// folder is made; Error if it cannot be written. On one rank.
Run prepare_run(const RunRequest& request, const Variables& environment);

/// What prepare_run() made.
Run read_run(const std::filesystem::path& folder);

/// The text of a run's data, which is not mnist.
std::unique_ptr<Language> load_language(const TrainSettings& settings, const TransformerConfig& config,
                                        const Tokenizer& tokenizer, const Variables& environment);

}  // namespace lockstep::train
