#pragma once

#include <filesystem>

#include "train/checkpoint/store.h"

namespace lockstep::train {

/// Whether `folder` is one checkpoint, torn or not, rather than a folder of them: by its name, or because it
/// has a manifest. Throws UsageError if there is no such folder.
bool is_checkpoint(const std::filesystem::path& folder);

/// The store in a folder that a person named: a run's (which holds `checkpoints`) or the one of the
/// checkpoints. Throws UsageError naming what was found there if there is no checkpoint.
CheckpointStore find_store(const std::filesystem::path& given);

/// The checkpoint that a person means by a folder: itself, or the newest whole one of a store. Throws
/// UsageError as find_store() does, and Error telling why if the checkpoint, or each of them, is not whole.
/// `skipped` gets why newer ones were not taken.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& given,
                                         std::vector<std::string>* skipped = nullptr);

}  // namespace lockstep::train
