#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "launch/unique_fd.h"
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

/// Held by the one job that writes a run's folder: by the command that takes it and by what it starts. It is
/// released when the last of these processes ends, however it ends.
class RunLock {
 public:
  /// Makes a file `.lock` in `folder`. Throws UsageError if another job has the lock for longer than
  /// `patience`, or if the folder cannot be written. A file system without locks is no reason to refuse.
  void take(const std::filesystem::path& folder, std::chrono::milliseconds patience);
  bool is_taken() const { return bool(fd_); }

 private:
  launch::UniqueFd fd_;
};

/// Takes the lock of a run that is to resume, and returns what its folder says. Waits a little: the processes
/// of a job that was killed may not have ended yet. Changes nothing else.
Run lock_run(const std::filesystem::path& folder, RunLock& lock);

/// Makes the folder of a new run: config.json, tokenizer.json and, last, run.json. Of a run that resumes it
/// changes nothing: see save_settings(). Takes the lock before anything is written, unless it is taken
/// already. Fetches data that are named. Throws UsageError for what cannot be trained, before the folder is
/// made; Error if it cannot be written. On one rank.
Run prepare_run(const RunRequest& request, const Variables& environment, RunLock& lock);

/// What prepare_run() made.
Run read_run(const std::filesystem::path& folder);

/// Writes the settings of a run that was accepted as its run.json.
void save_settings(const Run& run);

/// Writes a file of a run's folder, whole or not at all; throws Error.
void write_run_file(const std::filesystem::path& file, std::string_view text);

/// The data of a run as a condition of its bits: name and fingerprint.
std::string data_condition(const TrainSettings& settings, const std::string& fingerprint);
/// The same, of the data as they are now.
std::string data_condition(const TrainSettings& settings, const Variables& environment);

/// The text of a run's data, which is not mnist.
std::unique_ptr<Language> load_language(const TrainSettings& settings, const TransformerConfig& config,
                                        const Tokenizer& tokenizer, const Variables& environment);

}  // namespace lockstep::train
