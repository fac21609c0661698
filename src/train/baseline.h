#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::train {

/// One process trains FullMLP on TeacherTask with Adam and a mean squared error.
struct BaselineOptions {
  int64_t dim = 128;    ///< Width of every layer.
  int64_t depth = 16;   ///< Linear layers.
  int64_t batch = 64;   ///< Samples a step.
  int64_t steps = 500;  ///< Optimizer steps.
  double lr = 1e-3;     ///< Adam's learning rate.
  int64_t seed = 0;     ///< Of weights, task and samples.
};

/// What a run came to. Equal options give equal losses, bit for bit, on the same CPU kind and thread count.
struct BaselineResult {
  int64_t parameters = 0;
  int threads = 0;             ///< That LibTorch's own kernels use.
  std::vector<double> losses;  ///< Of each step's batch, before the step changed the weights.
  double validation_before = 0;
  double validation_after = 0;
  double seconds = 0;  ///< Spent in steps: neither start-up nor validation.
};

/// Called after each step with the steps done so far (from 1), the step's loss and the seconds spent in
/// steps; returns whether to go on.
using StepWatcher = std::function<bool(int64_t done, double loss, double seconds)>;

/// Trains until `options.steps` steps are done or the watcher says no. Throws Error, naming the step, when a
/// loss is not finite.
BaselineResult train_baseline(const BaselineOptions& options, const StepWatcher& watcher);

}  // namespace lockstep::train
