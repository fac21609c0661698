#include "train/run/saved_run.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/error.h"
#include "lockstep/train/models/tiny_transformer.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/resolve.h"
#include "train/checkpoint/strict_json.h"
#include "train/checkpoint/tensors.h"

namespace lockstep::train {

Run read_checkpoint_run(const std::filesystem::path& given) {
  const auto folder = resolve_checkpoint(given);
  const auto state_file = folder / "state.json";
  const auto state = parse_strict(read_text(state_file, kMostJsonBytes), state_file.string());
  const auto settings = state.find("settings");
  if (settings == state.end()) throw Error(fmt::format("{}: settings are missing", state_file.string()));
  Run run = {.folder = folder, .settings = parse_settings(settings->dump(), state_file.string())};
  if (run.is_mnist()) return run;
  run.config = read_config(folder / "config.json");
  run.tokenizer = Tokenizer::parse(read_text(folder / "tokenizer.json", kMostJsonBytes));
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
