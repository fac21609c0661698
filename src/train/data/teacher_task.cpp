#include "train/data/teacher_task.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cmath>

#include "parallel/seed.h"

namespace lockstep::train {

namespace {

constexpr int64_t kLatent = 8;
constexpr int64_t kHidden = 16;
constexpr int64_t kCalibration = 4096;

at::Tensor draw(uint64_t seed, int64_t rows, int64_t columns) {
  return at::randn({rows, columns}, at::detail::createCPUGenerator(seed));
}

}  // namespace

TeacherTask::TeacherTask(int64_t dim, uint64_t seed) : seed_(seed) {
  const int64_t latent = std::min(kLatent, dim);
  const double spread = std::sqrt(static_cast<double>(latent));
  to_inputs_ = draw(parallel::derive_seed(seed, parallel::Stream::kTask, 0), latent, dim).div_(spread);
  to_hidden_ =
      draw(parallel::derive_seed(seed, parallel::Stream::kTask, 1), latent, kHidden).mul_(1.5 / spread);
  to_targets_ = draw(parallel::derive_seed(seed, parallel::Stream::kTask, 2), kHidden, dim);
  const auto targets = sample(parallel::derive_seed(seed, parallel::Stream::kTask, 3), kCalibration).targets;
  to_targets_ /= targets.square().mean().sqrt();
}

Batch TeacherTask::batch(int64_t step, int64_t count) const {
  return sample(parallel::derive_seed(seed_, parallel::Stream::kBatches, static_cast<uint64_t>(step)), count);
}

Batch TeacherTask::validation(int64_t count) const {
  return sample(parallel::derive_seed(seed_, parallel::Stream::kValidation), count);
}

Batch TeacherTask::sample(uint64_t seed, int64_t count) const {
  const auto latent = draw(seed, count, to_inputs_.size(0));
  return {.inputs = at::matmul(latent, to_inputs_),
          .targets = at::matmul(at::matmul(latent, to_hidden_).tanh(), to_targets_)};
}

}  // namespace lockstep::train
