// The contract of collectives over MPI, under mpirun, and how its jobs end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

/// This many ranks of the actor under mpirun.
std::vector<std::string> by_mpirun(int ranks, const std::vector<std::string>& part) {
  std::vector<std::string> command = {"mpirun", "--oversubscribe", "-n", std::to_string(ranks),
                                      LOCKSTEP_ACTOR};
  command.insert(command.end(), part.begin(), part.end());
  return command;
}

Child::Options with_engine(const std::string& engine) {
  return {.environment = {{"LOCKSTEP_ENGINE", engine},
                          {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}}};
}

class Mpi : public testing::TestWithParam<int> {};

TEST_P(Mpi, KeepsTheContract) {
  Child job(by_mpirun(GetParam(), {"contract"}), with_engine("mpi"));
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_EQ(job.output(), "");
  EXPECT_TRUE(job.leaves_nothing());
}

INSTANTIATE_TEST_SUITE_P(Worlds, Mpi, testing::Values(1, 2, 3, 4, 5, 7, 8),
                         testing::PrintToStringParamName());

TEST(MpiFaults, AKilledRankEndsTheJobWithNothingLeft) {
  for (const char* what : {"die-before", "die-at-entry", "die-within"}) {
    Child job(by_mpirun(3, {what, "100000"}), with_engine("mpi"));
    EXPECT_NE(job.wait(), 0) << what;
    EXPECT_TRUE(job.leaves_nothing()) << what;
  }
}

TEST(MpiFaults, AStoppedRankIsNamedAtTheTimeoutAndTheJobEnds) {
  Child job(by_mpirun(2, {"stop-within", "1000", "5000"}), with_engine("mpi"));
  EXPECT_NE(job.wait(), 0);
  EXPECT_THAT(job.errors(), HasSubstr("on rank 0: rank 1 did not "));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(MpiFaults, DifferentCallsAreTheSameErrorEverywhere) {
  for (const char* what :
       {"other-count", "other-type", "other-operation", "other-collective", "other-root"}) {
    Child job(by_mpirun(2, {what}), with_engine("mpi"));
    EXPECT_NE(job.wait(), 0);
    EXPECT_THAT(job.errors(), HasSubstr("hint: all ranks must make the same calls in the same order"))
        << what;
    EXPECT_TRUE(job.leaves_nothing());
  }
}

TEST(MpiFaults, ARankThatIsContinuedInTimeGoesOn) {
  Child job(by_mpirun(2, {"pause-within"}), with_engine("mpi"));
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(MpiFaults, ARankThatLeavesIsNamed) {
  Child job(by_mpirun(2, {"leave"}), with_engine("mpi"));
  EXPECT_NE(job.wait(), 0);
  EXPECT_THAT(job.errors(), HasSubstr("barrier #1 on rank 0: rank 1 has left the job"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(MpiFaults, AnAbortFromAnotherThreadWakesEverybody) {
  Child job(by_mpirun(3, {"abort"}), with_engine("mpi"));
  EXPECT_NE(job.wait(), 0);
  EXPECT_THAT(job.errors(), HasSubstr("rank 2 ended the communication: enough"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(MpiFaults, TwoJobsAtOnceAreApart) {
  Child one(by_mpirun(2, {"fork"}), with_engine("mpi"));
  Child other(by_mpirun(2, {"fork"}), with_engine("mpi"));
  EXPECT_EQ(one.wait(), 0) << one.errors();
  EXPECT_EQ(other.wait(), 0) << other.errors();
}

TEST(MpiFaults, AChildThatIsForkedDoesNoHarm) {
  Child job(by_mpirun(2, {"fork"}), with_engine("mpi"));
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(MpiFaults, AForkedChildGetsClearErrorsAndEndsWell) {
  Child job(by_mpirun(3, {"forked-child"}), with_engine("mpi"));
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_EQ(job.output(), "");
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(MpiFaults, AForkedChildCannotInitialiseAgain) {
  Child job(by_mpirun(2, {"init-in-child"}), with_engine("mpi"));
  EXPECT_EQ(job.wait(), 0) << job.errors();
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(job.errors(),
                HasSubstr(std::string("init_distributed on rank ") + rank + ": called in a forked child"));
  }
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(MpiStart, IsRefusedOutsideOfMpirun) {
  Child alone({LOCKSTEP_ACTOR, "contract"}, with_engine("mpi"));
  EXPECT_EQ(alone.wait(), 3);
  EXPECT_THAT(alone.errors(),
              HasSubstr("engine mpi: this process was started neither by mpirun nor by srun with PMIx"));
}

TEST(MpiStart, BetweenHostsRankZeroMakesTheTokenAndMpiIsTheEngine) {
  // Every rank on a node of its own, as far as it knows.
  const std::vector<std::string> command = {"mpirun",
                                            "--oversubscribe",
                                            "-n",
                                            "3",
                                            "env",
                                            "OMPI_MCA_orte_num_nodes=3",
                                            "OMPI_COMM_WORLD_LOCAL_SIZE=1",
                                            "OMPI_COMM_WORLD_LOCAL_RANK=0",
                                            LOCKSTEP_ACTOR,
                                            "engine"};
  Child job(command, with_engine(""));
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_EQ(job.output(), "mpi\n");
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(MpiStart, MpirunAlsoStartsTheOtherEngines) {
  for (const char* engine : {"shm", "gloo"}) {
    Child job(by_mpirun(2, {"contract"}), with_engine(engine));
    EXPECT_EQ(job.wait(), 0) << engine << job.errors();
    EXPECT_TRUE(job.leaves_nothing());
  }
}

}  // namespace
}  // namespace lockstep::test
