#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"
#include "train/run/run_folder.h"

namespace lockstep::train {

/// What a run knows before its first step.
struct TrainStart {
  int64_t first_step = 0;  ///< Steps done before.
  int64_t steps = 0;       ///< Until it ends.
  int64_t parameters = 0;
  int threads = 1;
  std::string unit;  ///< "tokens" or "images".
  std::optional<double> entropy;
  std::vector<std::string> notes;  ///< Of the checkpoint that it goes on from.
};

struct TrainStep {
  int64_t step = 0;  ///< From 1.
  double loss = 0;   ///< Mean over all ranks.
  double tokens_per_s = 0;
  double seconds = 0;  ///< Since this process's first step.
};

/// How a run asks and tells. All are called on every rank; what they print is rank 0's affair.
struct TrainEvents {
  std::function<void(const TrainStart&)> on_start;
  std::function<void(const TrainStep&)> on_step;
  /// A signal that asks to stop; 0: none. One rank's is enough.
  std::function<int()> stop_signal;
};

struct TrainOptions {
  bool resume = false;
  bool inexact = false;  ///< Go on also where the same bits cannot be promised.
  bool tensorboard = false;
  Variables environment;
};

struct TrainResult {
  int64_t step = 0;  ///< The last one done.
  int64_t steps = 0;
  int stop_signal = 0;  ///< Why it ended before its last step.
  double first_loss = 0, loss = 0;
  double validation_loss = 0;
  double accuracy = 0;
  std::optional<double> floor;  ///< No model can have a lower validation loss, by the very validation tokens.
  bool leaks = false;           ///< It is lower.
  double seconds = 0;           ///< In steps.
  double tokens_per_s = 0;
  double exposed_ms = 0;  ///< Communication that held a step up, on average on rank 0.
  std::filesystem::path checkpoint;
};

/// Trains until the steps are done or a rank is asked to stop; then, and every so many steps, saves. All
/// ranks of the run call it. Throws Error, naming the step, when a loss is not finite.
TrainResult train(const Run& run, Communicator comm, const TrainOptions& options, const TrainEvents& events);

}  // namespace lockstep::train
