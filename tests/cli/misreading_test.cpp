// What `lockstep doctor`, `run` and `bench blas` make of an OpenBLAS that misreads the CPU, with real
// kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/torch_probe.h"
#include "launch/blas.h"
#include "launch/capture.h"
#include "support/child.h"
#include "support/slurm_task.h"

namespace lockstep {
namespace {

using launch::Environment;
using nlohmann::json;
using testing::HasSubstr;

launch::Captured lockstep(std::vector<std::string> words, const Environment& environment) {
  words.insert(words.begin(), LOCKSTEP_COMMAND);
  return launch::capture(words, environment, std::chrono::seconds(100));
}

class Misreading : public testing::Test {
 protected:
  void SetUp() override {
    environment_ = launch::with_coretype(launch::current_environment(), "");
    environment_["LD_PRELOAD"] = LOCKSTEP_MISREADING_OPENBLAS;
    ASSERT_EQ(launch::probe_openblas(environment_).core, "Prescott");
    best_ = launch::best_coretype(launch::detect_cpu());
    ASSERT_NE(best_, "") << "this test needs a CPU with AVX";
  }

  /// The core name that a rank under `lockstep run` finds.
  std::string core_of_a_rank(const Environment& environment) {
    const test::TemporaryFolder logs;
    const auto run = lockstep({"run", "--nproc-per-node", "1", "--tee", "0", "--log-dir",
                               logs.path().string(), "--", LOCKSTEP_TORCH_COMMAND, "probe"},
                              environment);
    EXPECT_EQ(run.exit_code, 0) << run.errors;
    return cli::parse_torch_probe(test::read_file(logs / "rank_0/stdout.log")).blas_core;
  }

  Environment environment_;
  std::string best_;
};

TEST_F(Misreading, IsMendedUnderLockstepRun) {
  EXPECT_GE(launch::kernel_tier(core_of_a_rank(environment_)), launch::kernel_tier(best_));
}

TEST_F(Misreading, IsMendedInATrainingThatAnotherLauncherStarts) {
  const test::TemporaryFolder folder;
  environment_.merge(test::slurm_task(0, 1));
  const auto run = lockstep({"train", "--steps", "1", "--batch", "1", "--run-dir", (folder / "run").string()},
                            environment_);
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  const json state = json::parse(test::read_file(folder / "run/checkpoints/step_00000001/state.json"));
  EXPECT_EQ(state.at("conditions").at("openblas_coretype"), best_);
}

TEST_F(Misreading, IsNotMendedAgainstTheUser) {
  EXPECT_EQ(core_of_a_rank(launch::with_coretype(environment_, "Nehalem")), "Nehalem");
}

TEST_F(Misreading, IsFoundByDoctorWithBothRates) {
  const auto run = lockstep({"doctor", "--json"}, environment_);
  const json document = json::parse(run.output);
  for (const auto& row : document.at("rows")) {
    if (row.at("name") != "OpenBLAS kernels") continue;
    EXPECT_EQ(row.at("status"), "warning");
    EXPECT_EQ(row.at("mend"), "export OPENBLAS_CORETYPE=" + best_);
    EXPECT_THAT(row.at("value").get<std::string>(), HasSubstr("OpenBLAS misreads this CPU"));
    EXPECT_GT(row.at("numbers").at("gflops"), 0);
    EXPECT_GT(row.at("numbers").at("right_gflops"), 0);
    return;
  }
  FAIL() << run.output;
}

TEST_F(Misreading, IsMeasuredByBenchBlas) {
  const auto run = lockstep({"bench", "blas", "--rounds", "1", "--json"}, environment_);
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  const json document = json::parse(run.output);
  EXPECT_EQ(document.at("coretype"), best_);
  const auto& rows = document.at("rows");
  EXPECT_EQ(rows.at(0).at("core"), "Prescott");
  EXPECT_GE(launch::kernel_tier(rows.at(1).at("core").get<std::string>()), launch::kernel_tier(best_));
  for (const auto& row : rows) EXPECT_GT(row.at("gflops").at("median"), 0);
}

}  // namespace
}  // namespace lockstep
