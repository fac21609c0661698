#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/manifest.h"

namespace lockstep::train {

/// "step_00000200".
std::string checkpoint_name(int64_t step);
/// Reads that back; nothing if it is named otherwise.
std::optional<int64_t> step_of_name(std::string_view name);

/// A checkpoint in its place.
struct Checkpoint {
  std::filesystem::path folder;
  int64_t step = 0;
};

/// The checkpoints of a run, each a folder of files:
///
///   checkpoints/step_00000200/manifest.json, ...    a checkpoint
///   checkpoints/LATEST                              the name of the one written last, for people
///   checkpoints/.step_00000400.tmp                  one that is being written
///
/// Whatever stops a process, and whenever: find() has at least what commit() returned from, and never a torn
/// one. One process calls begin(), commit(), abandon() and remove_leftovers(); others write files into
/// temporary() between begin() and commit(), and anyone may read. What cannot be done throws Error naming the
/// file.
class CheckpointStore {
 public:
  /// Touches nothing. `folder` holds the checkpoints; begin() makes it.
  explicit CheckpointStore(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }

  /// Makes the temporary folder of this step anew, and returns it. Throws UsageError if `step` is not in
  /// [0, kMostSteps].
  std::filesystem::path begin(int64_t step) const;
  std::filesystem::path temporary(int64_t step) const;
  /// Where the checkpoint of this step is, or would be.
  std::filesystem::path folder_of(int64_t step) const;

  /// Makes a checkpoint of the temporary folder, which must hold the files of `seals` and no other, and
  /// returns where it is. One of the same step is replaced. LATEST names it then.
  ///
  /// Afterwards removes those of earlier steps but the newest ones, so that with this one `keep` whole ones
  /// are left (whole as read_checkpoint() sees it). Those of later steps stay: they are from before a resume
  /// at an earlier step.
  std::filesystem::path commit(int64_t step, const std::vector<Seal>& seals, int64_t keep) const;

  /// Removes the temporary folder.
  void abandon(int64_t step) const noexcept;

  /// Removes what runs left behind that died while they wrote. Call it before find(): it may put back a
  /// checkpoint that was being replaced.
  void remove_leftovers() const;

  /// All that have a folder, whole or not, by step.
  std::vector<Checkpoint> checkpoints() const;
  std::vector<int64_t> steps() const;

  /// The answer of find().
  struct Found {
    std::optional<Checkpoint> checkpoint;  ///< None if no checkpoint is whole.
    std::vector<std::string> refused;      ///< Why those of later steps were not taken, one text each.
  };

  /// The newest checkpoint at or below `at_most` that verify_checkpoint() finds whole. Of LATEST only this is
  /// asked: whether the one that it names is missing.
  Found find(int64_t at_most = kMostSteps) const;

 private:
  std::filesystem::path aside(int64_t step) const;
  std::optional<int64_t> latest_step() const;
  void check_files(int64_t step, const std::vector<Seal>& seals) const;
  void put_in_place(int64_t step) const;
  void write_latest(int64_t step) const;
  void remove_earlier(int64_t step, int64_t keep) const;

  std::filesystem::path folder_;
};

}  // namespace lockstep::train
