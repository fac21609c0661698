#include "lockstep/launch/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "launch/identity_samples.h"
#include "launch/slurm.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using namespace samples;
using testing::HasSubstr;

TEST(Identity, IsAloneInAnEmptyEnvironment) {
  EXPECT_EQ(identify({}), Identity{});
  EXPECT_EQ(to_string(identify({})), "rank 0 of 1 (local rank 0 of 1, node 0 of 1), alone");
}

TEST(Identity, IsAloneWithWhatOnlyLaunchersRead) {
  EXPECT_EQ(identify({{"MASTER_ADDR", "tux1"}, {"MASTER_PORT", "1"}, {"NNODES", "2"}, {"NODE_RANK", "1"}}),
            Identity{});
}

TEST(Identity, ReadsThisProcessEnvironment) {
  ASSERT_EQ(setenv("LOCKSTEP_JOB_ID", "", 1), 0);
  EXPECT_THROW(identify(), UsageError);
  ASSERT_EQ(unsetenv("LOCKSTEP_JOB_ID"), 0);
}

TEST(Identity, ReadsLockstepRun) {
  EXPECT_EQ(identify(lockstep_run()), (Identity{.rank = 3,
                                                .world_size = 4,
                                                .local_rank = 1,
                                                .local_world_size = 2,
                                                .node_rank = 1,
                                                .nodes = 2,
                                                .master_addr = "tux1",
                                                .master_port = 29500,
                                                .restart_count = 1,
                                                .job_id = "train-7",
                                                .launcher = Launcher::kLockstep}));
  EXPECT_EQ(
      to_string(identify(lockstep_run())),
      "rank 3 of 4 (local rank 1 of 2, node 1 of 2), master tux1:29500, restart 1, job train-7, started by "
      "lockstep run");
}

TEST(Identity, ReadsTorchrun) {
  const Identity identity = identify(torchrun());
  EXPECT_EQ(identity.launcher, Launcher::kTorchrun);
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(identity.node_rank, 1);
  EXPECT_EQ(identity.nodes, 2);
  EXPECT_EQ(identity.restart_count, 1);
  EXPECT_EQ(identity.job_id, "none");
}

TEST(Identity, ReadsMpirunOnOneNode) {
  EXPECT_EQ(identify(mpirun()), (Identity{.rank = 1,
                                          .world_size = 3,
                                          .local_rank = 1,
                                          .local_world_size = 3,
                                          .job_id = "1138688001",
                                          .launcher = Launcher::kMpirun}));
  EXPECT_EQ(to_string(identify(mpirun())),
            "rank 1 of 3 (local rank 1 of 3, node 0 of 1), restart 0, job 1138688001, started by mpirun");
}

TEST(Identity, DoesNotGuessTheNodeUnderMpirunOnSeveralNodes) {
  const Environment two_nodes =
      with(mpirun(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_MCA_orte_num_nodes", "2"}});
  EXPECT_EQ(identify(two_nodes).node_rank, std::nullopt);
  EXPECT_EQ(identify(two_nodes).nodes, 2);
  EXPECT_THAT(to_string(identify(two_nodes)), HasSubstr("node ? of 2"));
  // mpirun 5 does not tell the number of nodes.
  EXPECT_EQ(identify(without(two_nodes, "OMPI_MCA_orte_num_nodes")).nodes, std::nullopt);
  EXPECT_EQ(identify(without(mpirun(), "OMPI_MCA_orte_num_nodes")).nodes, 1);
}

TEST(Identity, ReadsSrun) {
  EXPECT_EQ(identify(srun()), (Identity{.rank = 6,
                                        .world_size = 7,
                                        .local_rank = 0,
                                        .local_world_size = 1,
                                        .node_rank = 3,
                                        .nodes = 4,
                                        .master_addr = "tux1",
                                        .master_port = 20000 + (4242 * 31) % 10000,
                                        .job_id = "4242.0",
                                        .launcher = Launcher::kSrun}));
  const Environment chosen = {
      {"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "65535"}, {"SLURM_RESTART_COUNT", "2"}};
  EXPECT_EQ(to_string(identify(with(srun(), chosen))),
            "rank 6 of 7 (local rank 0 of 1, node 3 of 4), master [fe80::1]:65535, restart 2, job 4242.0, "
            "started by srun");
}

TEST(Identity, ReadsATaskOfARealSlurm) {
  EXPECT_EQ(
      to_string(identify(srun_captured())),
      "rank 2 of 3 (local rank 0 of 1, node 1 of 2), master n1:20031, restart 0, job 1.0, started by srun");
}

TEST(Identity, IsAloneInABatchScriptWithoutSrun) {
  EXPECT_EQ(identify(batch_script()), Identity{});
  // The number of salloc's own step.
  EXPECT_EQ(identify(with(batch_script(), {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}})),
            Identity{});
}

TEST(Identity, ReadsVariablesSetByHand) {
  EXPECT_EQ(identify(by_hand()), (Identity{.rank = 2,
                                           .world_size = 4,
                                           .node_rank = std::nullopt,
                                           .nodes = std::nullopt,
                                           .master_addr = "10.0.0.1",
                                           .master_port = 29500,
                                           .launcher = Launcher::kEnvironment}));
  EXPECT_EQ(identify({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), (Identity{.launcher = Launcher::kEnvironment}));
}

TEST(Identity, LearnsTheNodeByHandFromNodeRankAndNnodes) {
  const Identity one_node = identify(with(by_hand(), {{"NNODES", "1"}}));
  EXPECT_EQ(one_node.local_rank, 2);
  EXPECT_EQ(one_node.local_world_size, 4);
  EXPECT_EQ(one_node.node_rank, 0);
  const Identity two_nodes = identify(
      with(by_hand(), {{"NNODES", "2"}, {"NODE_RANK", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}));
  EXPECT_EQ(two_nodes.node_rank, 1);
  EXPECT_EQ(two_nodes.nodes, 2);
  EXPECT_EQ(two_nodes.local_world_size, 2);
}

TEST(Identity, LetsTheInnermostLauncherCount) {
  const Environment one_task_per_node = with(srun(), {{"SLURM_STEP_NUM_TASKS", "2"},
                                                      {"SLURM_STEP_NUM_NODES", "2"},
                                                      {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                                      {"SLURM_STEP_NODELIST", "tux[1-2]"},
                                                      {"SLURM_PROCID", "1"},
                                                      {"SLURM_NODEID", "1"}});
  EXPECT_EQ(identify(with(one_task_per_node, torchrun())).launcher, Launcher::kTorchrun);
  EXPECT_EQ(identify(with(one_task_per_node, mpirun())).launcher, Launcher::kMpirun);
  const Environment one_process_per_node = with(mpirun(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                           {"OMPI_MCA_orte_num_nodes", "3"}});
  EXPECT_EQ(identify(with(one_process_per_node, torchrun())).rank, 3);
  EXPECT_EQ(identify(with(batch_script(), torchrun())).rank, 3);
  EXPECT_EQ(identify(with(batch_script(), lockstep_run())).rank, 3);
  EXPECT_EQ(identify(with(batch_script(), by_hand())).launcher, Launcher::kEnvironment);
}

TEST(Identity, AcceptsRanksByHandThatRepeatTheLaunchers) {
  const Environment repeated = {
      {"RANK", "6"}, {"WORLD_SIZE", "7"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}, {"NODE_RANK", "3"}};
  EXPECT_EQ(identify(with(srun(), repeated)), identify(srun()));
  EXPECT_EQ(identify(with(mpirun(), {{"RANK", "1"}, {"WORLD_SIZE", "3"}})), identify(mpirun()));
}

// Random jobs of uneven nodes: every task must find its own place, and all of them the same master.
TEST(Identity, FindsEveryTaskOfRandomSlurmSteps) {
  std::mt19937 random(4242);
  const auto between = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  for (int job = 1; job <= 200; ++job) {
    std::vector<int> tasks(static_cast<std::size_t>(between(1, 6)));
    std::string per_node;
    int world_size = 0;
    for (int& count : tasks) {
      count = between(1, 4);
      world_size += count;
      per_node += (per_node.empty() ? "" : ",") + std::to_string(count);
    }
    const int first = between(0, 99);
    const int last = first + static_cast<int>(tasks.size()) - 1;
    int rank = 0;
    for (int node = 0; node < static_cast<int>(tasks.size()); ++node) {
      for (int local = 0; local < tasks[static_cast<std::size_t>(node)]; ++local, ++rank) {
        const Identity identity = identify(
            {{"SLURM_JOB_ID", std::to_string(job)},
             {"SLURM_STEP_ID", "3"},
             {"SLURM_PROCID", std::to_string(rank)},
             {"SLURM_LOCALID", std::to_string(local)},
             {"SLURM_NODEID", std::to_string(node)},
             {"SLURM_STEP_NUM_TASKS", std::to_string(world_size)},
             {"SLURM_STEP_NUM_NODES", std::to_string(tasks.size())},
             {"SLURM_STEP_TASKS_PER_NODE", per_node},
             {"SLURM_STEP_NODELIST", "n[" + std::to_string(first) + "-" + std::to_string(last) + "]"}});
        ASSERT_EQ(identity, (Identity{.rank = rank,
                                      .world_size = world_size,
                                      .local_rank = local,
                                      .local_world_size = tasks[static_cast<std::size_t>(node)],
                                      .node_rank = node,
                                      .nodes = static_cast<int>(tasks.size()),
                                      .master_addr = "n" + std::to_string(first),
                                      .master_port = 20000 + (31 * job + 3) % 10000,
                                      .job_id = std::to_string(job) + ".3",
                                      .launcher = Launcher::kSrun}));
      }
    }
  }
}

TEST(SlurmMasterPort, StaysInItsRangeAndTellsStepsApart) {
  EXPECT_EQ(launch::slurm_master_port("0", "0"), 20000);
  EXPECT_EQ(launch::slurm_master_port("42", "1"), 21303);
  EXPECT_EQ(launch::slurm_master_port("4294967295", "4294967295"),
            20000 + static_cast<int>(32 * 4294967295ULL % 10000));
  EXPECT_THROW(launch::slurm_master_port("", "0"), UsageError);
  EXPECT_THROW(launch::slurm_master_port("1", "-1"), UsageError);
}

}  // namespace
}  // namespace lockstep
