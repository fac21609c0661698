#include "train/run/saved_run.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"
#include "lockstep/train/models/tiny_transformer.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/strict_json.h"
#include "train/checkpoint/tensors.h"
#include "train/run/resume.h"

namespace lockstep::train {

Run read_checkpoint_run(const std::filesystem::path& folder) {
  Run run = {.folder = folder, .settings = read_state(folder).settings};
  if (run.is_mnist()) return run;
  run.config = read_config(folder / "config.json");
  const auto tokenizer = folder / "tokenizer.json";
  run.tokenizer = Tokenizer::parse(read_text(tokenizer, kMostJsonBytes), tokenizer.string());
  return run;
}

void load_whole_model(const std::filesystem::path& checkpoint, torch::nn::Sequential& model) {
  const at::NoGradGuard no_grad;
  load_weights(named_weights(*model), SavedTensors(checkpoint, "model"));
}

torch::nn::Sequential load_language_model(const Run& run) {
  if (run.is_mnist()) {
    throw UsageError(fmt::format("{} is a classifier of images, which writes no text; hint: lockstep eval",
                                 run.folder.string()));
  }
  torch::nn::Sequential model(TinyTransformer(run.config, /*seed=*/0)->layers());
  load_whole_model(run.folder, model);
  return model;
}

Evaluated evaluate(torch::nn::Sequential model, const Task& task) {
  constexpr int64_t kBatch = 64;
  const at::NoGradGuard no_grad;
  model->eval();
  Evaluated sum;
  for (int64_t begin = 0; begin < task.validation_size(); begin += kBatch) {
    const int64_t end = std::min(begin + kBatch, task.validation_size());
    const Batch batch = task.validation_batch(begin, end);
    const auto output = model->forward(batch.inputs);
    const auto score = task.score(output, batch.targets);
    sum.loss += task.loss(output, batch.targets).item<double>() * static_cast<double>(end - begin);
    sum.score.right += score.right;
    sum.score.all += score.all;
    sum.samples += end - begin;
  }
  sum.loss /= static_cast<double>(sum.samples);
  return sum;
}

}  // namespace lockstep::train
