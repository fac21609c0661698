// `lockstep bench ddp` as a user meets it, without PyTorch: checked losses, whatever the times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "support/bench.h"
#include "support/child.h"
#include "support/temporary_folder.h"

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> bench(const std::vector<std::string>& words) {
  return bench_command("ddp", words);
}

TEST(BenchDdp, RowsHaveTheKeysThatOtherProgramsReadAndLossesAgree) {
  Child child(bench({"--world", "2", "--model", "mlp:16x3", "--batch", "4", "--optimizer", "adam", "--peers",
                     "libtorch", "--rounds", "1", "--steps", "2", "--json"}));
  ASSERT_EQ(child.wait(), 0) << child.errors();
  const auto document = nlohmann::json::parse(child.output());
  ASSERT_THAT(names_of(document["rows"], "system"), ElementsAre("lockstep", "libtorch"));
  for (const auto& row : document["rows"]) {
    for (const char* key : {"system", "model", "world", "batch", "optimizer", "step_ms", "first_loss",
                            "last_loss", "wire_bytes", "exposed_comm_ms"})
      EXPECT_TRUE(row.contains(key)) << key;
    EXPECT_EQ(row["model"], "mlp:16x3");
    EXPECT_EQ(row["batch"], 4);
    EXPECT_EQ(row["optimizer"], "adam");
    EXPECT_GT(row["step_ms"], 0);
    for (const char* loss : {"first_loss", "last_loss"}) {
      const double expected = document["rows"][0][loss];
      EXPECT_GT(expected, 0);
      EXPECT_NEAR(row[loss].get<double>(), expected, 1e-3 * expected) << loss;
    }
  }
  const int64_t gradient_bytes = 3 * 16 * 17 * 4;
  EXPECT_EQ(document["rows"][0]["wire_bytes"], gradient_bytes) << "2(P-1)/P of them";
  EXPECT_EQ(document["rows"][1]["wire_bytes"], 0);
  EXPECT_EQ(document["rows"][1]["world"], 1);
  EXPECT_EQ(document["ratios"][0]["system"], "libtorch");
}

TEST(BenchDdp, SeveralModelsEnginesAndOptimizersAreMeasured) {
  for (const char* optimizer : {"adam", "sgd", "torch-adam"}) {
    Child child(bench({"--model", "mlp:8x2,mlp:16x2", "--batch", "4,2", "--engine", "gloo", "--optimizer",
                       optimizer, "--rounds", "1", "--steps", "1", "--json"}));
    ASSERT_EQ(child.wait(), 0) << optimizer << ": " << child.errors();
    const auto document = nlohmann::json::parse(child.output());
    EXPECT_THAT(names_of(document["rows"], "model"), ElementsAre("mlp:8x2", "mlp:16x2"));
    EXPECT_EQ(document["rows"][1]["batch"], 2);
    EXPECT_EQ(document["settings"]["engine"], "gloo");
  }
}

TEST(BenchDdp, TheTableShowsThePartsOfTheStepBesideTheirFloors) {
  Child child(bench({"--model", "mlp:16x2", "--batch", "4", "--rounds", "2", "--steps", "2", "--overlap",
                     "on", "--bucket-cap-mib", "0.001", "--peers", "libtorch"}));
  ASSERT_EQ(child.wait(), 0) << child.errors();
  for (const char* text :
       {"data parallel training on 2 ranks over shm, adam at 1e-05; 2 rounds", "OPENBLAS_CORETYPE",
        "times lockstep's", "losses of all systems agree within 0.001", "floor ms", "forward", "backward",
        "exposed communication", "optimizer", "the rest"})
    EXPECT_THAT(child.output(), HasSubstr(text));
  EXPECT_TRUE(child.leaves_nothing());
}

struct Mistake {
  std::vector<std::string> words;
  std::string expected;
};

TEST(BenchDdp, MistakesAreRefusedByValueBeforeARankStarts) {
  const std::vector<Mistake> mistakes = {
      {{"--model", "mpl:128x16"}, "--model 'mpl:128x16': not a model; hint: mlp:WIDTHxLAYERS"},
      {{"--model", "mlp:128"}, "--model 'mlp:128': not a model"},
      {{"--model", "mlp:0x16"}, "--model 'mlp:0x16': not a model"},
      {{"--model", ""}, "--model: the value is empty"},
      {{"--batch", "0"}, "--batch '0': not a number of samples"},
      {{"--batch", "32,64"}, "--batch '32,64': 2 batches for 1 models; hint: one for all, or one for each"},
      {{"--optimizer", "adamw"}, "--optimizer: 'adamw' is none of adam, sgd, torch-adam"},
      {{"--engine", "smh"}, "--engine: 'smh' is none of shm, gloo"},
      {{"--peers", "pytroch"}, "--peers 'pytroch': there is no such peer; hint: did you mean pytorch?"},
      {{"--overlap", "yes"}, "--overlap: 'yes' is none of auto, on, off"},
      {{"--world", "0"}, "--world: 0 is not between 1 and 64"},
      {{"--model", "mlp:16384x1000"}, "need about"},
      {{"--json", "/no/such/folder/file"}, "--json /no/such/folder/file: No such file or directory"},
  };
  for (const auto& [words, expected] : mistakes) {
    Child child(bench(words));
    EXPECT_EQ(child.wait(), 2) << expected;
    EXPECT_THAT(child.errors(), HasSubstr(expected));
    EXPECT_EQ(child.output(), "") << expected;
  }
}

TEST(BenchDdp, HelpHasAnExample) {
  Child child(bench({"--help"}));
  EXPECT_EQ(child.wait(), 0);
  EXPECT_THAT(child.output(), HasSubstr("lockstep bench ddp --world 2 --model mlp:128x16 --batch 32"));
}

TEST(BenchDdp, SigtermEndsItWithNothingLeft) {
  const Ended ended =
      stop_at_work(bench({"--model", "mlp:16x3", "--batch", "4", "--rounds", "1000"}), SIGTERM);
  EXPECT_EQ(ended.exit_code, 128 + SIGTERM) << ended.errors;
  EXPECT_TRUE(ended.left_nothing);
}

TEST(BenchOverlap, ComparesTheTwoWaysAndPrintsTheIdealBesideWhatWasReached) {
  const TemporaryFolder folder;
  Child child({LOCKSTEP_COMMAND,
               "run",
               "--nproc-per-node",
               "2",
               "--engine",
               "gloo",
               "--log-dir",
               folder.path().string(),
               "--",
               LOCKSTEP_COMMAND,
               "bench",
               "overlap",
               "--dim",
               "32",
               "--depth",
               "3",
               "--bucket-cap-mib",
               "0.004",
               "--rounds",
               "2"});
  ASSERT_EQ(child.wait(), 0) << child.errors();
  EXPECT_THAT(child.output(),
              testing::AllOf(HasSubstr("FullMLP(32, 3) on 2 ranks over gloo"),
                             HasSubstr("(chosen: backward as long as communication)"),
                             HasSubstr("3 buckets of 0.004 MiB"), HasSubstr("exposed, as logged"),
                             HasSubstr("ideal, (F+B+C+O)/(F+max(B,C)+O), is ")));
  EXPECT_TRUE(child.leaves_nothing());
}

}  // namespace
}  // namespace lockstep::test
