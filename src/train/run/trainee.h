#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "lockstep/comms/communicator.h"
#include "train/run/task.h"
#include "train/run/weights.h"

namespace lockstep::train {

/// A model in training, on one rank of however many: what the loop need not know of being parallel.
class Trainee {
 public:
  virtual ~Trainee() = default;

  /// Of the samples of a step, those of this rank: part `data_rank()` of `data_ranks()`.
  virtual int data_rank() const = 0;
  virtual int data_ranks() const = 0;

  /// Makes the gradients of a step from this rank's samples, mean over all ranks'. Returns the loss of its
  /// own samples; none on a rank that sees none.
  virtual std::optional<double> step(const Batch& batch, int64_t step) = 0;
  /// Clips all ranks' gradients, taken as one vector, to this norm (0: does not), and returns what it was.
  virtual double clip(double max_norm) = 0;
  /// The loss and score of a batch, without dropout or gradients; none on a rank that cannot tell.
  struct Evaluation {
    double loss = 0;
    Task::Score score;
  };
  virtual std::optional<Evaluation> evaluate(const Batch& batch) = 0;

  /// Milliseconds of the last step in which communication held this rank up.
  virtual double exposed_ms() const = 0;

  virtual const Weights& weights() const = 0;
  /// Files that a checkpoint's weights are in, and the one, from 0, that this rank writes, if any.
  virtual int files() const = 0;
  virtual std::optional<int> own_file() const = 0;
};

/// As the run's settings say. All ranks call it. `first_step`: the steps that were done before.
std::unique_ptr<Trainee> make_trainee(const Run& run, const Task& task, const Communicator& comm,
                                      int64_t first_step);

}  // namespace lockstep::train
