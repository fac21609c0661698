// Data parallel training beside PyTorch's, in Python on Gloo: the same losses, step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/bench_ddp_systems.h"
#include "cli/bench_losses.h"
#include "support/child.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

const std::filesystem::path kCommands = std::filesystem::path(LOCKSTEP_COMMAND).parent_path();

/// 20 steps from the same weights, each on another batch, in buckets of a few kilobytes.
void expect_the_losses_of_pytorch(const std::string& optimizer, double lr, const std::string& engine) {
  constexpr int64_t kSteps = 20;
  const cli::DdpBench bench = {.world = 2,
                               .engine = engine,
                               .optimizer = optimizer,
                               .lr = lr,
                               .bucket_cap_mib = 0.01,
                               .batches = kSteps,
                               .models = {{.dim = 32, .depth = 6, .batch = 8}}};
  cli::DdpSystems systems(bench, cli::parse_ddp_peers("pytorch,libtorch"), kCommands);
  systems.build(0);
  const auto expected = systems.train("pytorch-ddp", kSteps);
  ASSERT_FALSE(cli::losses_agree(expected.front(), expected.back(), 1e-2)) << "nothing was trained";
  for (const auto& system : systems.names()) {
    if (system == "pytorch-ddp") continue;
    const auto found = systems.train(system, kSteps);
    for (size_t step = 0; step < expected.size(); ++step) {
      EXPECT_TRUE(cli::losses_agree(found[step], expected[step], 1e-4))
          << optimizer << ", step " << step << ": " << system << " has " << found[step] << ", PyTorch "
          << expected[step];
    }
  }
}

TEST(DdpBesidePyTorch, SgdWithMomentumHasTheSameLossInEveryStep) {
  expect_the_losses_of_pytorch("sgd", 1e-2, "shm");
}

TEST(DdpBesidePyTorch, AdamHasTheSameLossInEveryStep) {
  expect_the_losses_of_pytorch("adam", 1e-3, "shm");
}

TEST(DdpBesidePyTorch, TheSameOverGloo) {
  expect_the_losses_of_pytorch("torch-adam", 1e-3, "gloo");
}

TEST(BenchDdpBesidePyTorch, HasARowForEachOfItsSettings) {
  Child child({LOCKSTEP_COMMAND, "bench", "ddp", "--model", "mlp:16x3,mlp:8x2", "--batch", "4", "--rounds",
               "1", "--steps", "2", "--peers", "pytorch", "--json"});
  ASSERT_EQ(child.wait(), 0) << child.errors();
  const auto rows = nlohmann::json::parse(child.output())["rows"];
  ASSERT_EQ(rows.size(), 6U);
  const std::vector<std::string> systems = {"lockstep", "pytorch-ddp", "pytorch-ddp-views"};
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["system"], systems[i % 3]);
    EXPECT_EQ(rows[i]["world"], 2);
    EXPECT_GT(rows[i]["step_ms"], 0);
    EXPECT_GT(rows[i]["exposed_comm_ms"], 0);
    EXPECT_EQ(rows[i]["wire_bytes"], rows[i - i % 3]["wire_bytes"]);
    const double expected = rows[i - i % 3]["last_loss"];
    EXPECT_NEAR(rows[i]["last_loss"].get<double>(), expected, 1e-3 * expected);
  }
  EXPECT_TRUE(child.leaves_nothing());
}

TEST(BenchDdpBesidePyTorch, APythonWithoutTorchIsAnErrorThatSaysHowToGetIt) {
  const TemporaryFolder folder;
  std::ofstream(folder / "torch.py") << "raise ImportError('not this one')\n";
  Child::Options options;
  options.environment["PYTHONPATH"] = folder.path().string();
  Child child({LOCKSTEP_COMMAND, "bench", "ddp", "--model", "mlp:8x2", "--peers", "pytorch"}, options);
  EXPECT_EQ(child.wait(), 1);
  EXPECT_THAT(child.errors(), HasSubstr("cannot import torch: ImportError: not this one"));
  EXPECT_THAT(child.errors(), HasSubstr("apt-get install python3-torch"));
}

}  // namespace
}  // namespace lockstep::test
