#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <filesystem>

#include "train/run/run_folder.h"
#include "train/run/task.h"

namespace lockstep::train {

/// A run as one of its checkpoints, which is whole, describes it: its settings, config and tokenizer;
/// `folder` is the checkpoint's. Throws UsageError or Error, naming what is wrong.
Run read_checkpoint_run(const std::filesystem::path& checkpoint);

/// The model of a language run, with the checkpoint's weights, whole on this rank. Throws UsageError for
/// another run.
torch::nn::Sequential load_language_model(const Run& run);

/// Puts a checkpoint's weights into a whole model.
void load_whole_model(const std::filesystem::path& checkpoint, torch::nn::Sequential& model);

/// The mean loss and the score of a model on all of a task's validation samples.
struct Evaluated {
  double loss = 0;
  Task::Score score;
  int64_t samples = 0;
};
Evaluated evaluate(torch::nn::Sequential model, const Task& task);

}  // namespace lockstep::train
