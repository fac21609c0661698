#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/store.h"
#include "train/run/run_folder.h"

namespace lockstep::train {

/// What decides bits beside a run's settings, by name.
using Conditions = std::map<std::string, std::string>;

/// What a checkpoint says of the run that saved it, in its state.json.
struct SavedState {
  TrainSettings settings;
  Conditions conditions;
  double loss = 0;  ///< Of its last step.
};

/// Throws Error or UsageError, naming the file and the value.
SavedState read_state(const std::filesystem::path& checkpoint);

/// Where a run resumes.
struct Resumption {
  std::optional<Checkpoint> checkpoint;  ///< None: it was stopped before its first one.
  SavedState state;
  /// What the user should know: why newer checkpoints were not taken, and which settings changed.
  std::vector<std::string> notes;
};

/// The newest whole checkpoint of a run; changes nothing. Throws UsageError if the run's own settings, config
/// or tokenizer differ from the checkpoint's, naming each, and if checkpoints were saved but none is whole.
Resumption find_resumption(const Run& run);

/// Throws UsageError if the run has fewer steps than its checkpoint has done.
void require_steps(int64_t steps, int64_t done);

/// Each of `now` that is not as it was: "threads 2, was 1".
std::vector<std::string> differences(const Conditions& now, const Conditions& then);

/// Throws UsageError if there are any.
void require_same_bits(int64_t step, const std::vector<std::string>& differences);

}  // namespace lockstep::train
