#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::train {

/// Inputs and what a model shall answer, both [count, dim].
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

/// A regression task that can be learned and not merely memorised: every sample is new, and inputs and
/// targets are two fixed views of the same few hidden numbers. With z ~ N(0, 1) of 8 numbers: inputs = z A,
/// targets = c tanh(z B) C, where A, B, C are drawn from the seed.
///
/// c makes the targets' mean square 1. Their mean is 0, so a model that always answers the mean has a mean
/// squared error of 1; the least possible is 0.
class TeacherTask {
 public:
  TeacherTask(int64_t dim, uint64_t seed);

  /// The samples that step `step` (from 0) trains on: a function of (seed, step, count).
  Batch batch(int64_t step, int64_t count) const;

  /// Samples that no step trains on.
  Batch validation(int64_t count) const;

 private:
  Batch sample(uint64_t seed, int64_t count) const;

  uint64_t seed_;
  at::Tensor to_inputs_;
  at::Tensor to_hidden_;
  at::Tensor to_targets_;
};

}  // namespace lockstep::train
