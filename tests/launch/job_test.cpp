#include "launch/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const MachineFacts kFourCores = {.cores = {{{0, 4}}, {{1, 5}}, {{2, 6}}, {{3, 7}}},
                                 .usable_cores = 4,
                                 .blas = {.coretype = "SKYLAKEX", .reason = "misread"}};

std::string value_of(const RankSpec& rank, const std::string& name) {
  for (const auto& setting : rank.settings) {
    if (setting.name == name) return setting.value;
  }
  return "(not set)";
}

Job resolve(JobOptions options, const Environment& environment = {}) {
  options.program = {"/bin/true"};
  return resolve_job(options, environment, kFourCores);
}

TEST(ResolveJob, SharesCoresAndThreadsAmongRanks) {
  const Job two = resolve({.nproc_per_node = "2"});
  EXPECT_THAT(two.ranks[0].cpus, ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(two.ranks[1].cpus, ElementsAre(2, 6, 3, 7));
  EXPECT_EQ(value_of(two.ranks[1], "OMP_NUM_THREADS"), "2");
  EXPECT_EQ(value_of(two.ranks[1], "OPENBLAS_NUM_THREADS"), "2");
  EXPECT_EQ(value_of(two.ranks[1], "OPENBLAS_CORETYPE"), "SKYLAKEX");
  const Job eight = resolve({.nproc_per_node = "8"});
  EXPECT_TRUE(eight.ranks[0].cpus.empty());
  EXPECT_EQ(value_of(eight.ranks[0], "OMP_NUM_THREADS"), "1");
  const Job free = resolve({.nproc_per_node = "2", .bind = "none"});
  EXPECT_TRUE(free.ranks[0].cpus.empty());
  EXPECT_EQ(resolve({.nproc_per_node = "auto"}).ranks.size(), 4U);
}

TEST(ResolveJob, AFlagBeatsTheEnvironment) {
  const Environment environment = {
      {"NPROC_PER_NODE", "3"}, {"MASTER_PORT", "1111"}, {"MASTER_ADDR", "elsewhere"}};
  EXPECT_EQ(resolve({}, environment).ranks.size(), 3U);
  EXPECT_EQ(resolve({.nproc_per_node = "2"}, environment).ranks.size(), 2U);
  EXPECT_EQ(value_of(resolve({}, environment).ranks[0], "MASTER_PORT"), "1111");
  EXPECT_EQ(value_of(resolve({.master_port = "2222"}, environment).ranks[0], "MASTER_PORT"), "2222");
  const Job standalone = resolve({.standalone = true}, environment);
  EXPECT_TRUE(standalone.choose_port);
  EXPECT_EQ(value_of(standalone.ranks[0], "MASTER_ADDR"), "127.0.0.1");
}

TEST(ResolveJob, EmptyVariablesAreRefusedByName) {
  EXPECT_THAT(
      [] {
        resolve({}, {{"NPROC_PER_NODE", ""}});
      },
      testing::ThrowsMessage<UsageError>(HasSubstr("NPROC_PER_NODE: '' is not a whole number")));
}

TEST(ResolveJob, FiltersCountLocalOrGlobalRanks) {
  JobOptions second_node = {
      .nproc_per_node = "2", .nnodes = "2", .node_rank = "1", .master_addr = "127.0.0.1"};
  second_node.local_ranks_filter = "0";
  const Job local = resolve(second_node);
  EXPECT_TRUE(local.ranks[0].tee_stdout);
  EXPECT_FALSE(local.ranks[1].tee_stdout);
  second_node.local_ranks_filter = "";
  second_node.ranks_filter = "3";
  const Job global = resolve(second_node);
  EXPECT_FALSE(global.ranks[0].tee_stderr);
  EXPECT_TRUE(global.ranks[1].tee_stderr);
}

TEST(ResolveJob, SrunsTasksNumberTheNodesOnlyOfAsManyNodes) {
  const Environment srun = {{"SLURM_JOB_ID", "7"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "1"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_NODEID", "1"},
                            {"SLURM_STEP_NUM_TASKS", "2"},
                            {"SLURM_STEP_NUM_NODES", "2"},
                            {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                            {"SLURM_STEP_NODELIST", "tux[1-2]"}};
  EXPECT_EQ(resolve({.nnodes = "2"}, srun).node_rank, 1);
  EXPECT_EQ(resolve({.nnodes = "3", .node_rank = "2"}, srun).node_rank, 2);
  EXPECT_THAT([&] { resolve({.nnodes = "3"}, srun); },
              testing::ThrowsMessage<UsageError>(HasSubstr("hint: give --node-rank")));
  EXPECT_EQ(resolve({.nnodes = "1"}, srun).node_rank, 0) << "the only node";
}

TEST(ResolveJob, AnEmptyCoretypeCountsAsUnset) {
  EXPECT_EQ(value_of(resolve({}, {{"OPENBLAS_CORETYPE", ""}}).ranks[0], "OPENBLAS_CORETYPE"), "SKYLAKEX");
  EXPECT_EQ(value_of(resolve({}, {{"OPENBLAS_CORETYPE", "ZEN"}}).ranks[0], "OPENBLAS_CORETYPE"), "ZEN");
}

TEST(ResolveJob, ThreadsThatAreNoPositiveNumberAreRefused) {
  const auto expect_refusal = [](const std::string& name, const std::string& value) {
    const auto text = testing::AllOf(HasSubstr(name), HasSubstr(value), HasSubstr("; hint: "));
    EXPECT_THAT([&] { resolve({}, {{name, value}}); }, testing::ThrowsMessage<UsageError>(text));
    EXPECT_THAT([&] { resolve({.settings = {name + "=" + value}}); },
                testing::ThrowsMessage<UsageError>(text));
  };
  for (const char* value : {"abc", "0", "-1", "", "2.5", "4,", "4,x"}) {
    expect_refusal("OMP_NUM_THREADS", value);
    expect_refusal("OPENBLAS_NUM_THREADS", value);
  }
  expect_refusal("OPENBLAS_NUM_THREADS", "4,2");
  EXPECT_EQ(value_of(resolve({}, {{"OMP_NUM_THREADS", "4,2"}}).ranks[0], "OMP_NUM_THREADS"), "4,2");
}

TEST(RankEnvironment, CountsAttemptsAndDropsTheOuterLaunchersTasks) {
  const Environment srun = {{"SLURM_JOB_ID", "7"},           {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "0"},           {"SLURM_LOCALID", "0"},
                            {"SLURM_NODEID", "0"},           {"SLURM_STEP_NUM_TASKS", "1"},
                            {"SLURM_STEP_NUM_NODES", "1"},   {"SLURM_STEP_TASKS_PER_NODE", "1"},
                            {"SLURM_STEP_NODELIST", "tux1"}, {"KEPT", "yes"}};
  const Job job = resolve({.nproc_per_node = "2"}, srun);
  const Environment environment = rank_environment(job, job.ranks[1], srun, 2, 4321);
  EXPECT_EQ(environment.at("TORCHELASTIC_RESTART_COUNT"), "2");
  EXPECT_EQ(environment.at("MASTER_PORT"), "4321");
  EXPECT_EQ(environment.at("SLURM_JOB_ID"), "7");
  EXPECT_EQ(environment.at("KEPT"), "yes");
  EXPECT_FALSE(environment.contains("SLURM_PROCID"));
  EXPECT_FALSE(environment.contains("SLURM_STEP_NUM_TASKS"));
}

}  // namespace
}  // namespace lockstep::launch
