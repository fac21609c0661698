#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"
#include "train/checkpoint/store.h"
#include "train/run/resume.h"
#include "train/run/trainee.h"

namespace lockstep::train {

/// Where a checkpoint goes on, and how it was made.
struct Restored {
  int64_t step = 0;                ///< Steps done; 0: there is no checkpoint.
  double loss = 0;                 ///< Of the last of them.
  std::vector<std::string> notes;  ///< As Resumption's.
  /// What decides bits and is not as it was: "threads 2, were 1".
  std::vector<std::string> differences;
};

/// The checkpoints of a run. All ranks make the same calls; what fails on one is an error on all.
class Saver {
 public:
  /// `data`: the fingerprint of what is trained on, see Task.
  Saver(const Run& run, const Communicator& comm, std::string data);

  /// The newest whole checkpoint: only looked for, see find_resumption().
  Restored find();
  /// Puts weights and the optimizer's state back, of the checkpoint that find() found.
  void restore(const Trainee& trainee, torch::optim::Optimizer& optimizer);
  /// Removes what a run that died left in the checkpoints' folder: once this run is accepted.
  void remove_leftovers();
  std::filesystem::path folder_of(int64_t step) const { return store_.folder_of(step); }
  /// Returns when the disk has it.
  void save(int64_t step, double loss, const Trainee& trainee, torch::optim::Optimizer& optimizer);

 private:
  void commit(int64_t step, double loss, const std::vector<std::string>& told);
  Conditions conditions() const;

  const Run& run_;
  Communicator comm_;
  std::string data_;
  CheckpointStore store_;
  std::filesystem::path found_;
};

}  // namespace lockstep::train
