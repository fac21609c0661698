#include "train/baseline.h"

#include <ATen/Parallel.h>
#include <ATen/ops/mse_loss.h>
#include <fmt/format.h>
#include <torch/optim/adam.h>

#include <chrono>
#include <cmath>
#include <iterator>
#include <string_view>

#include "lockstep/error.h"
#include "lockstep/train/models/full_mlp.h"
#include "train/data/teacher_task.h"

namespace lockstep::train {

namespace {

constexpr int64_t kValidationCount = 512;

void require_finite(double loss, std::string_view which, int64_t step, const BaselineOptions& options) {
  if (std::isfinite(loss)) return;
  // abs: a NaN may carry a sign, which says nothing.
  throw Error(fmt::format("train: the {} is {} at step {} of {}; hint: lower --lr, now {}", which,
                          std::abs(loss), step, options.steps, options.lr));
}

double loss_on(FullMLP& model, const Batch& batch) {
  const at::NoGradGuard no_grad;
  return at::mse_loss(model(batch.inputs), batch.targets).item<double>();
}

double train_step(FullMLP& model, torch::optim::Optimizer& optimizer, const Batch& batch) {
  optimizer.zero_grad();
  const auto loss = at::mse_loss(model(batch.inputs), batch.targets);
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

}  // namespace

BaselineResult train_baseline(const BaselineOptions& options, const StepWatcher& watcher) {
  const auto seed = static_cast<uint64_t>(options.seed);
  const TeacherTask task(options.dim, seed);
  const Batch validation = task.validation(kValidationCount);
  FullMLP model(options.dim, options.depth, seed);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(options.lr));

  BaselineResult result;
  result.threads = at::get_num_threads();
  for (const auto& parameter : model->parameters()) result.parameters += parameter.numel();
  result.validation_before = loss_on(model, validation);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < options.steps; ++step) {
    const double loss = train_step(model, optimizer, task.batch(step, options.batch));
    require_finite(loss, "loss", step + 1, options);
    result.losses.push_back(loss);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!watcher(step + 1, loss, result.seconds)) break;
  }
  result.validation_after = loss_on(model, validation);
  require_finite(result.validation_after, "validation loss", std::ssize(result.losses), options);
  return result;
}

}  // namespace lockstep::train
