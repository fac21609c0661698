// Pipeline parallel training beside a plain 1F1B loop in Python on Gloo: the same losses, step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/bench_losses.h"
#include "cli/bench_pipeline_systems.h"
#include "support/child.h"

namespace lockstep::test {
namespace {

const std::filesystem::path kCommands = std::filesystem::path(LOCKSTEP_COMMAND).parent_path();

TEST(PipelineBesidePyTorch, EveryScheduleHasTheSameLossInEveryStep) {
  constexpr int64_t kSteps = 20;
  // Neither layers nor samples divide evenly.
  const cli::PipelineBench bench = {.stages = 3,
                                    .microbatches = 4,
                                    .rows = {{"naive", 1}, {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}},
                                    .model = {.dim = 16, .depth = 7, .batch = 10}};
  cli::PipelineSystems systems(bench, /*with_pytorch=*/true, kCommands);
  const size_t peer = systems.count() - 1;
  ASSERT_EQ(systems.name(peer), cli::kPytorchPipeline);
  const auto expected = systems.train(peer, kSteps);
  ASSERT_FALSE(cli::losses_agree(expected.front(), expected.back(), 1e-2)) << "nothing was trained";
  for (size_t system = 0; system < peer; ++system) {
    const auto found = systems.train(system, kSteps);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t step = 0; step < expected.size(); ++step) {
      EXPECT_TRUE(cli::losses_agree(found[step], expected[step], 1e-4))
          << systems.name(system) << ", step " << step << ": " << found[step] << ", PyTorch has "
          << expected[step];
    }
  }
}

TEST(BenchPipelineBesidePyTorch, HasARowAndARatioForIt) {
  Child child({LOCKSTEP_COMMAND, "bench", "pipeline", "--model", "mlp:16x3", "--batch", "4", "--microbatches",
               "2", "--schedules", "1f1b", "--rounds", "1", "--steps", "2", "--peers", "pytorch", "--json"});
  ASSERT_EQ(child.wait(), 0) << child.errors();
  const auto document = nlohmann::json::parse(child.output());
  ASSERT_EQ(document["rows"].size(), 2U);
  EXPECT_EQ(document["rows"][1]["system"], "pytorch-1f1b");
  EXPECT_GT(document["rows"][1]["step_ms"], 0);
  EXPECT_EQ(document["ratios"][0]["slower"], "pytorch-1f1b");
  EXPECT_TRUE(child.leaves_nothing());
}

}  // namespace
}  // namespace lockstep::test
