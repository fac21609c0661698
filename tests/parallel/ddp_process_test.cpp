// Data parallel training by processes, on every engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child.h"
#include "support/temporary_folder.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Job {
  const char* engine;
  int ranks;
};

class Processes : public testing::TestWithParam<Job> {
 protected:
  /// Runs the actor by our launcher, or by mpirun; its exit code, and nothing may be left.
  int run(const std::string& what) {
    const bool by_mpirun = std::string_view(GetParam().engine) == "mpi";
    const std::string ranks = std::to_string(GetParam().ranks);
    std::vector<std::string> command =
        by_mpirun
            ? std::vector<std::string>{"mpirun", "--oversubscribe", "-n", ranks}
            : std::vector<std::string>{LOCKSTEP_COMMAND,        "run", "--nproc-per-node", ranks, "--log-dir",
                                       folder_.path().string(), "--"};
    command.insert(command.end(), {LOCKSTEP_DDP_ACTOR, what});
    Child job(command, {.environment = {{"LOCKSTEP_ENGINE", GetParam().engine},
                                        {"OMP_NUM_THREADS", "1"},
                                        {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}}});
    const int code = job.wait();
    errors_ = job.errors();
    EXPECT_TRUE(job.leaves_nothing());
    return code;
  }

  TemporaryFolder folder_;
  std::string errors_;
};

TEST_P(Processes, TrainAConvolutionWithSyncBatchNormAndATiedWeightAsOneProcessDoes) {
  EXPECT_EQ(run("parity"), 0) << errors_;
}

TEST_P(Processes, KeepReplicasEqualThoughEachDrawsItsOwnDropout) {
  EXPECT_EQ(run("dropout"), 0) << errors_;
}

const auto kName = [](const auto& job) { return job.param.engine + std::to_string(job.param.ranks); };
INSTANTIATE_TEST_SUITE_P(Engines, Processes,
                         testing::Values(Job{"shm", 1}, Job{"shm", 2}, Job{"shm", 3}, Job{"shm", 4},
                                         Job{"gloo", 2}, Job{"gloo", 3}),
                         kName);
#ifdef LOCKSTEP_HAS_MPI
INSTANTIATE_TEST_SUITE_P(Mpi, Processes, testing::Values(Job{"mpi", 2}), kName);
#endif

class Memory : public Processes {};
TEST_P(Memory, IsFlatOverAThousandSteps) {
  EXPECT_EQ(run("memory"), 0) << errors_;
}
TEST_P(Memory, HoldsOneCopyOfWeightsGradientsAndOptimizerState) {
  EXPECT_EQ(run("peak"), 0) << errors_;
}
INSTANTIATE_TEST_SUITE_P(Engines, Memory, testing::Values(Job{"shm", 2}, Job{"gloo", 2}), kName);

class Death : public Processes {};
TEST_P(Death, InTheMiddleOfBackwardIsToldToTheOthers) {
  EXPECT_NE(run("die"), 0);
  EXPECT_THAT(errors_, AllOf(HasSubstr("SIGKILL"), HasSubstr("rank 2")));
}
INSTANTIATE_TEST_SUITE_P(Engines, Death, testing::Values(Job{"shm", 3}, Job{"gloo", 3}), kName);

}  // namespace
}  // namespace lockstep::test
