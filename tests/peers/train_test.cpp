// Checkpoints of `lockstep train` in Python: a model of PyTorch's own layers, with their weights, has the
// logits that ours has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/child.h"
#include "train/run/saved_run.h"

namespace lockstep::test {
namespace {

using nlohmann::json;

// An eps that nobody has by default, and sizes that are all different.
constexpr const char* kConfig = R"({"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "intermediate_size": 80, "max_position_embeddings": 24, "layer_norm_eps": 1e-3})";

/// Of the largest logit, as far as two ways to compute in float32 may be apart.
constexpr double kTolerance = 1e-5;

/// Trains a few large steps, after which no bias is 0 and no norm 1, and returns the checkpoint.
std::filesystem::path train_a_little(const std::filesystem::path& folder,
                                     const std::vector<std::string>& flags) {
  std::ofstream(folder / "small.json") << kConfig;
  std::vector<std::string> command = {LOCKSTEP_COMMAND, "train", "--steps",  "5", "--batch", "8",
                                      "--lr",           "0.1",   "--warmup", "0"};
  command.insert(command.end(), {"--config", folder / "small.json", "--run-dir", folder / "run"});
  command.insert(command.end(), flags.begin(), flags.end());
  Child child(command);
  EXPECT_EQ(child.wait(), 0) << child.errors();
  return folder / "run" / "checkpoints" / "step_00000005";
}

size_t weight_files(const std::filesystem::path& checkpoint) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) ++count;
  }
  return count;
}

std::vector<std::vector<int64_t>> some_tokens(const TransformerConfig& config) {
  std::vector<std::vector<int64_t>> tokens(2);
  for (size_t row = 0; row < tokens.size(); ++row) {
    for (int64_t place = 0; place < config.max_position_embeddings; ++place) {
      tokens[row].push_back((7 * place + 3 * place * place + static_cast<int64_t>(row)) % config.vocab_size);
    }
  }
  return tokens;
}

/// What the script prints: logits by the name of what was changed.
json logits_in_python(const std::filesystem::path& checkpoint, const json& tokens) {
  // Debian's python3-torch is seen by Debian's own Python alone.
  Child python({"/usr/bin/python3", LOCKSTEP_SCRIPT, checkpoint}, {.input = tokens.dump()});
  EXPECT_EQ(python.wait(), 0) << python.errors() << "hint: apt-get install python3-torch";
  return json::parse(python.output(), nullptr, /*allow_exceptions=*/false);
}

/// The largest difference, as part of the largest of our logits.
double difference(const at::Tensor& ours, const json& theirs) {
  std::vector<float> flat;
  for (const auto& sequence : theirs) {
    for (const auto& logits : sequence) {
      for (const auto& logit : logits) flat.push_back(logit.get<float>());
    }
  }
  const auto other = torch::tensor(flat).view(ours.sizes());
  return ((ours - other).abs().max() / ours.abs().max()).item<double>();
}

void expect_the_logits_of_pytorch(const std::filesystem::path& checkpoint) {
  const auto run = train::read_checkpoint_run(checkpoint);
  const auto tokens = some_tokens(run.config);
  const torch::NoGradGuard no_grad;
  auto model = train::load_language_model(run);
  model->eval();
  std::vector<at::Tensor> rows;
  for (const auto& row : tokens) rows.push_back(torch::tensor(row, torch::kLong));
  const auto ours = model->forward(torch::stack(rows));

  const json theirs = logits_in_python(checkpoint, tokens);
  ASSERT_TRUE(theirs.is_object());
  ASSERT_EQ(theirs.size(), 6U);
  const double apart = difference(ours, theirs.at("as saved"));
  EXPECT_LT(apart, kTolerance);
  // Ours is that model and none of its neighbours, of which a GELU by tanh is the nearest.
  for (const auto& [change, logits] : theirs.items()) {
    if (change == "as saved") continue;
    EXPECT_GT(difference(ours, logits), std::max(10 * apart, kTolerance)) << change;
  }
}

TEST(TrainBesidePyTorch, ACheckpointOfOneProcessHasTheSameLogits) {
  const TemporaryFolder folder;
  const auto checkpoint = train_a_little(folder.path(), {"--nproc-per-node", "1"});
  ASSERT_EQ(weight_files(checkpoint), 1U);
  expect_the_logits_of_pytorch(checkpoint);
}

TEST(TrainBesidePyTorch, ACheckpointOfAPipelineInTwoFilesHasTheSameLogits) {
  const TemporaryFolder folder;
  const auto checkpoint = train_a_little(folder.path(), {"--parallel", "pipeline", "--nproc-per-node", "2"});
  ASSERT_EQ(weight_files(checkpoint), 2U);
  expect_the_logits_of_pytorch(checkpoint);
}

}  // namespace
}  // namespace lockstep::test
