#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/run/run_folder.h"

namespace lockstep::train {

/// Samples side by side.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

/// What a run learns: data, model and loss.
class Task {
 public:
  virtual ~Task() = default;

  virtual int64_t train_size() const = 0;
  virtual int64_t validation_size() const = 0;
  virtual Batch train_batch(const std::vector<size_t>& indices) const = 0;
  /// Samples begin to end, without the latter.
  virtual Batch validation_batch(int64_t begin, int64_t end) const = 0;

  /// As it is before the first step, a function of the seed; it can be cut between any two layers.
  virtual torch::nn::Sequential make_model(uint64_t seed) const = 0;
  /// The mean over the batch.
  virtual at::Tensor loss(const at::Tensor& output, const at::Tensor& targets) const = 0;
  /// Of `targets`, how many the output has right, and how many there are.
  struct Score {
    int64_t right = 0;
    int64_t all = 0;
  };
  Score score(const at::Tensor& output, const at::Tensor& targets) const;

  /// What a sample counts as in "tokens a second".
  virtual int64_t tokens_per_sample() const = 0;
  /// "tokens" or "images".
  virtual std::string unit() const = 0;
  /// Steps if nobody says: enough to be worth looking at.
  virtual int64_t default_steps(int64_t batch) const = 0;
  /// See Language.
  virtual std::optional<double> entropy() const { return std::nullopt; }
  virtual std::optional<Language::Floor> validation_floor() const { return std::nullopt; }
  /// Differs if the data do, as far as they are not the program's own.
  virtual std::string fingerprint() const { return ""; }
};

std::unique_ptr<Task> make_task(const Run& run, const Variables& environment);

}  // namespace lockstep::train
