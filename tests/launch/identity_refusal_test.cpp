#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/identity_samples.h"
#include "lockstep/error.h"
#include "lockstep/launch/identity.h"

// What Identity refuses, and how it says so.
namespace lockstep {
namespace {

using namespace samples;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Expects a refusal that names all of `parts` and gives a hint.
template <typename... Parts>
void expect_refusal(const Environment& environment, Parts... parts) {
  EXPECT_THAT([&] { identify(environment); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("; hint: "), HasSubstr(parts)...)));
}

TEST(Identity, RefusesContradictionsNamingBothVariables) {
  expect_refusal(with(srun(), {{"RANK", "2"}, {"WORLD_SIZE", "7"}}), "RANK=2 contradicts SLURM_PROCID=6");
  expect_refusal(with(srun(), {{"WORLD_SIZE", "8"}}), "WORLD_SIZE=8 contradicts SLURM_STEP_NUM_TASKS=7");
  expect_refusal(with(srun(), {{"LOCAL_WORLD_SIZE", "2"}}),
                 "LOCAL_WORLD_SIZE=2 contradicts SLURM_STEP_TASKS_PER_NODE=2(x3),1");
  expect_refusal(with(srun(), {{"NODE_RANK", "0"}}), "NODE_RANK=0 contradicts SLURM_NODEID=3");
  expect_refusal(with(mpirun(), {{"WORLD_SIZE", "1"}}), "WORLD_SIZE=1 contradicts OMPI_COMM_WORLD_SIZE=3");
  expect_refusal(with(mpirun(), {{"NODE_RANK", "1"}}), "NODE_RANK=1 contradicts all ranks being on one node");
  expect_refusal(with(lockstep_run(), {{"NODE_RANK", "0"}}), "NODE_RANK=0 contradicts GROUP_RANK=1");
}

TEST(Identity, RefusesALauncherInsideAnother) {
  expect_refusal(with(lockstep_run(), mpirun()), "RANK=3 contradicts OMPI_COMM_WORLD_RANK=1", "lockstep run");
  expect_refusal(with(lockstep_run(), srun()), "RANK=3 contradicts SLURM_PROCID=6");
  expect_refusal(with(lockstep_run(), {{"TORCHELASTIC_RUN_ID", "none"}}),
                 "TORCHELASTIC_RUN_ID=none contradicts LOCKSTEP_JOB_ID=train-7");
  expect_refusal(with(torchrun(), mpirun()), "RANK=3 contradicts OMPI_COMM_WORLD_RANK=1",
                 "one torchrun on each node");
  const Environment second_on_its_node = {
      {"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "0"}};
  expect_refusal(with(with(torchrun(), srun()), second_on_its_node), "RANK=3 contradicts SLURM_PROCID=1");
}

TEST(Identity, RefusesNumbersThatAreNoneOrOutOfRange) {
  expect_refusal(with(by_hand(), {{"RANK", "4"}}), "RANK: 4 is not between 0 and 3");
  expect_refusal(with(by_hand(), {{"RANK", "-1"}}), "RANK: -1 is not between 0 and 3");
  expect_refusal(with(by_hand(), {{"RANK", "two"}}), "RANK: 'two' is not a whole number");
  expect_refusal(with(by_hand(), {{"RANK", ""}}), "RANK: '' is not a whole number");
  expect_refusal(with(by_hand(), {{"WORLD_SIZE", "0"}}), "WORLD_SIZE: 0 is not between 1 and 16777216");
  expect_refusal(with(by_hand(), {{"MASTER_PORT", "65536"}}),
                 "MASTER_PORT: 65536 is not between 1 and 65535");
  expect_refusal(with(by_hand(), {{"MASTER_PORT", "0"}}), "MASTER_PORT: 0 is");
  expect_refusal(with(lockstep_run(), {{"LOCAL_RANK", "2"}}), "LOCAL_RANK: 2 is not between 0 and 1");
  expect_refusal(with(lockstep_run(), {{"LOCAL_WORLD_SIZE", "5"}}),
                 "LOCAL_WORLD_SIZE: 5 is not between 1 and 4");
  expect_refusal(with(lockstep_run(), {{"GROUP_RANK", "2"}}), "GROUP_RANK: 2 is not between 0 and 1");
  expect_refusal(with(lockstep_run(), {{"TORCHELASTIC_RESTART_COUNT", "x"}}),
                 "TORCHELASTIC_RESTART_COUNT: 'x'");
  expect_refusal(with(mpirun(), {{"OMPI_COMM_WORLD_RANK", "3"}}),
                 "OMPI_COMM_WORLD_RANK: 3 is not between 0 and 2");
  expect_refusal(with(srun(), {{"SLURM_PROCID", "7"}}), "SLURM_PROCID: 7 is not between 0 and 6");
  expect_refusal(with(srun(), {{"SLURM_NODEID", "4"}}), "SLURM_NODEID: 4 is not between 0 and 3");
  expect_refusal(with(srun(), {{"SLURM_LOCALID", "1"}}), "SLURM_LOCALID: 1 is not between 0 and 0");
  expect_refusal(with(srun(), {{"SLURM_STEP_ID", "1x"}}), "SLURM_STEP_ID: '1x' is not a whole number");
  expect_refusal(with(srun(), {{"SLURM_JOB_ID", "4294967296"}}), "SLURM_JOB_ID: '4294967296' is not");
}

TEST(Identity, RefusesNodesThatDoNotFitTheRanks) {
  expect_refusal(with(lockstep_run(), {{"LOCAL_WORLD_SIZE", "4"}}),
                 "4 ranks on this node (LOCAL_WORLD_SIZE) of 4");
  expect_refusal(with(mpirun(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
                 "do not make 1 node(s) (OMPI_MCA_orte_num_nodes)");
  expect_refusal(with(srun(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x2),3"}}), "tells of 3 node(s)",
                 "SLURM_STEP_NUM_NODES=4");
  expect_refusal(with(srun(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x2),1(x3)"}}), "tells of 5 node(s)");
  expect_refusal(with(srun(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x4)"}}), "tells of 8 task(s)",
                 "SLURM_STEP_NUM_TASKS=7");
  expect_refusal(with(srun(), {{"SLURM_STEP_NODELIST", "tux[1-3]"}}),
                 "SLURM_STEP_NODELIST=tux[1-3] names 3 host(s)");
}

// `lockstep run` gives all nodes equally many ranks; torchrun need not.
TEST(Identity, RefusesAPlaceThatLockstepRunNeverGives) {
  expect_refusal(with(lockstep_run(), {{"LOCAL_RANK", "0"}, {"GROUP_RANK", "0"}, {"NODE_RANK", "0"}}),
                 "RANK=3 contradicts GROUP_RANK * LOCAL_WORLD_SIZE + LOCAL_RANK = 0 * 2 + 0");
  expect_refusal(with(lockstep_run(), {{"LOCAL_WORLD_SIZE", "3"}}),
                 "WORLD_SIZE=4 contradicts GROUP_WORLD_SIZE * LOCAL_WORLD_SIZE = 2 * 3");
  EXPECT_EQ(identify(with(torchrun(), {{"LOCAL_WORLD_SIZE", "3"}, {"LOCAL_RANK", "2"}})).rank, 3);
}

TEST(Identity, RefusesASlurmTaskThatHasLostItsStep) {
  const Environment lost = {{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};
  expect_refusal(lost, "SLURM_STEP_ID is not set, but SLURM_PROCID=1 is");
  EXPECT_EQ(identify(with(lost, {{"SLURM_PROCID", "0"}})), Identity{});
  EXPECT_EQ(identify(with(lost, by_hand())).rank, 2);
}

TEST(Identity, SaysWhatItRefusesOnce) {
  try {
    identify({{"RANK", "0"}});
    FAIL() << "not refused";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_THAT(text, testing::StartsWith("identity: WORLD_SIZE is not set, but RANK=0 is; hint: "));
    EXPECT_EQ(text.find("; hint: "), text.rfind("; hint: "));
  }
}

TEST(Identity, StopsAtAHostlistThatItCannotRead) {
  expect_refusal(with(srun(), {{"SLURM_STEP_NODELIST", "tux[1-3,07"}}),
                 "SLURM_STEP_NODELIST: 'tux[1-3,07' cannot be read");
  expect_refusal(with(srun(), {{"SLURM_STEP_NODELIST", ""}}), "SLURM_STEP_NODELIST: ''");
  expect_refusal(with(srun(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}),
                 "SLURM_STEP_TASKS_PER_NODE: '2(x' cannot be read");
}

TEST(Identity, RefusesPartsByTheNameOfWhatIsMissing) {
  const auto expect_each_needed = [](const Environment& environment,
                                     std::initializer_list<const char*> names) {
    for (const char* name : names)
      expect_refusal(without(environment, name), std::string(name) + " is not set");
  };
  expect_each_needed(by_hand(), {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  expect_each_needed(lockstep_run(), {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
                                      "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                      "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"});
  expect_each_needed(
      torchrun(), {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                   "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"});
  expect_each_needed(mpirun(), {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                "OMPI_COMM_WORLD_LOCAL_SIZE"});
  expect_each_needed(srun(), {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID",
                              "SLURM_NODEID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES",
                              "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST"});
  expect_refusal({{"LOCAL_RANK", "1"}}, "WORLD_SIZE is not set, but LOCAL_RANK=1 is");
  expect_refusal(with(by_hand(), {{"LOCAL_RANK", "1"}}), "LOCAL_WORLD_SIZE is not set");
  expect_refusal(with(by_hand(), {{"LOCAL_WORLD_SIZE", "1"}}), "LOCAL_RANK is not set");
}

TEST(Identity, RefusesTextsThatAreNoAddressOrNoLine) {
  expect_refusal(with(by_hand(), {{"MASTER_ADDR", ""}}), "MASTER_ADDR: ''");
  expect_refusal(with(by_hand(), {{"MASTER_ADDR", "tux1 tux2"}}), "MASTER_ADDR=tux1 tux2 is not a host name");
  expect_refusal(with(by_hand(), {{"MASTER_ADDR", "tcp://tux1"}}),
                 "MASTER_ADDR=tcp://tux1 is not a host name");
  expect_refusal(with(lockstep_run(), {{"LOCKSTEP_JOB_ID", "a\nb"}}),
                 "LOCKSTEP_JOB_ID: 'a\\x0ab' is not one line");
}

// A variable lost on the way (a wrapper, `sudo`, `env -i`) must stop a rank, never make it another one or
// alone.
TEST(Identity, NeverBecomesAnotherRankByLosingOneVariable) {
  for (const Environment& environment :
       {lockstep_run(), torchrun(), mpirun(), srun(), srun_captured(), by_hand(), with(srun(), torchrun()),
        with(srun(), {{"RANK", "6"}, {"WORLD_SIZE", "7"}})}) {
    const Identity whole = identify(environment);
    for (const auto& [name, value] : environment) {
      try {
        const Identity rest = identify(without(environment, name));
        EXPECT_EQ(rest.rank, whole.rank) << name;
        EXPECT_EQ(rest.world_size, whole.world_size) << name;
      } catch (const UsageError&) {
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
