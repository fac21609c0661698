// A transformer's training beside the same model in PyTorch's DDP on Gloo: the same losses, step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/bench_losses.h"
#include "cli/bench_train_systems.h"
#include "support/child.h"
#include "support/temporary_folder.h"

namespace lockstep::test {
namespace {

const std::filesystem::path kCommands = std::filesystem::path(LOCKSTEP_COMMAND).parent_path();

/// Heads, layers and sequences of a number each, so that none is taken for another.
std::string write_config(const TemporaryFolder& folder) {
  const auto file = folder.path() / "config.json";
  std::ofstream(file) << R"({"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
                             "intermediate_size": 20, "max_position_embeddings": 10})";
  return file.string();
}

TEST(TrainBesidePyTorch, HasTheSameLossInEveryStep) {
  constexpr int64_t kSteps = 60;  // more than there are batches
  const TemporaryFolder folder;
  cli::TrainSystems systems(
      {.world = 2, .batch = 8, .config_file = write_config(folder), .with_pytorch = true}, kCommands);
  const auto expected = systems.train(cli::kTrainPytorch, kSteps);
  const auto found = systems.train(cli::kTrainLockstep, kSteps);
  ASSERT_FALSE(cli::losses_agree(expected.front(), expected.back(), 1e-1)) << "nothing was trained";
  ASSERT_EQ(found.size(), expected.size());
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_TRUE(cli::losses_agree(found[step], expected[step], 1e-3))
        << "step " << step << ": " << found[step] << ", PyTorch has " << expected[step];
  }
}

TEST(BenchTrainBesidePyTorch, HasComparedTheLossesAndTellsTheRatio) {
  const TemporaryFolder folder;
  Child child({LOCKSTEP_COMMAND, "bench", "train", "--config", write_config(folder), "--batch", "4",
               "--rounds", "1", "--steps", "2", "--checkpoint-every", "2", "--peers", "pytorch", "--json"});
  ASSERT_EQ(child.wait(), 0) << child.errors();
  const auto document = nlohmann::json::parse(child.output());
  ASSERT_EQ(document["rows"].size(), 3U);
  const auto& own = document["rows"][0];
  const auto& peer = document["rows"][2];
  EXPECT_EQ(peer["system"], "pytorch-ddp");
  for (const char* key : {"first_loss", "last_loss"}) {
    EXPECT_TRUE(cli::losses_agree(own[key], peer[key], cli::kLossTolerance))
        << key << ": " << own[key] << ", PyTorch has " << peer[key];
  }
  const auto& ratio = document["ratios"][0];
  EXPECT_EQ(ratio["system"], "pytorch-ddp");
  EXPECT_NEAR(ratio["median"].get<double>(),
              own["tokens_per_s"]["median"].get<double>() / peer["tokens_per_s"]["median"].get<double>(),
              1e-9);
  EXPECT_TRUE(child.leaves_nothing());
}

}  // namespace
}  // namespace lockstep::test
