// Pipelines of processes, on every engine: what they promise, and how they fail.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "comms/run_processes.h"
#include "lockstep/comms/shared_allocator.h"  // tensors are to lie where they do in a program
#include "parallel/pipeline_contract.h"
#include "parallel/pipeline_mishap.h"
#include "parallel/pipeline_models.h"
#include "support/child.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct World {
  const char* engine;
  int ranks;
};
const auto kName = [](const auto& world) { return world.param.engine + std::to_string(world.param.ranks); };

class PipelineProcesses : public testing::TestWithParam<World> {};

TEST_P(PipelineProcesses, KeepThePromisesOfAPipeline) {
  for (const auto& rank : run_processes(GetParam().ranks, check_pipeline, {.engine = GetParam().engine})) {
    EXPECT_EQ(rank.status, 0);
    EXPECT_EQ(rank.text, "");
  }
}
INSTANTIATE_TEST_SUITE_P(Engines, PipelineProcesses,
                         testing::Values(World{"shm", 1}, World{"shm", 2}, World{"shm", 3}, World{"shm", 4},
                                         World{"gloo", 3}),
                         kName);

#ifdef LOCKSTEP_HAS_MPI
/// Ends in time, with nothing left.
std::pair<int, std::string> by_mpirun(int ranks, const char* what) {
  Child job({"mpirun", "--oversubscribe", "-n", std::to_string(ranks), LOCKSTEP_PIPELINE_ACTOR, what},
            {.environment = {{"LOCKSTEP_ENGINE", "mpi"},
                             {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                             {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}}});
  const int code = job.wait();
  EXPECT_TRUE(job.leaves_nothing()) << what;
  return {code, job.errors()};
}

TEST(PipelineUnderMpirun, KeepsThePromisesOfAPipeline) {
  const auto [code, errors] = by_mpirun(3, "contract");
  EXPECT_EQ(code, 0) << errors;
}

TEST(PipelineUnderMpirun, AnExceptionInOneStageEndsTheJobWithItsWords) {
  const auto [code, errors] = by_mpirun(3, "throw");
  EXPECT_EQ(code, 1);
  // mpirun ends the others as soon as the first is gone, whether they have had their say or not.
  EXPECT_THAT(errors, HasSubstr("action 1F2 (micro-batch 2): this stage is broken"));
}

TEST(PipelineUnderMpirun, ADeadStageEndsTheJob) {
  const auto [code, errors] = by_mpirun(3, "die");
  EXPECT_NE(code, 0);
  EXPECT_THAT(errors, Not(HasSubstr("nothing happened")));
}
#endif

/// Every rank's error but the victim's says where it was, and has `cause`.
void expect_told(const std::vector<Ended>& ended, int victim, const std::string& cause,
                 const std::string& what) {
  for (int rank = 0; rank < static_cast<int>(ended.size()); ++rank) {
    const Ended& one = ended[static_cast<size_t>(rank)];
    if (rank == victim) continue;
    EXPECT_EQ(one.status, 3 << 8) << what;  // it threw
    EXPECT_THAT(one.text,
                AllOf(testing::ContainsRegex(fmt::format("pipeline step [0-9]+ on rank {}, action "
                                                         "[0-9][A-Z_]+[0-9] \\(micro-batch [0-9]\\)",
                                                         rank)),
                      HasSubstr(cause)))
        << what;
    EXPECT_LT(one.seconds, 30) << what;  // far below the timeout of 60 s
  }
}

std::function<std::string(Communicator&)> training_into(const std::string& schedule, const Mishap& mishap) {
  return [=](Communicator& comm) -> std::string {
    train_into(comm, schedule, mishap);
    return "nothing happened";
  };
}

class PipelineFaults : public testing::TestWithParam<const char*> {};

TEST_P(PipelineFaults, AnExceptionInOneStageIsToldByAllRanks) {
  const auto break_down = [] { throw std::runtime_error("this stage is broken"); };
  const std::vector<std::pair<Mishap, std::string>> cases = {
      {{.rank = 1, .step = 1, .microbatch = 2, .act = break_down}, "rank 1, action 1F2 (micro-batch 2)"},
      {{.rank = 0, .step = 2, .microbatch = 3, .act = break_down}, "rank 0, action 0F3 (micro-batch 3)"},
      {{.rank = 2, .step = 2, .in_backward = true, .microbatch = 1, .act = break_down},
       "rank 2, action 2B1 (micro-batch 1)"}};
  for (const auto& [mishap, where] : cases) {
    const auto ended = run_processes(3, training_into("1f1b", mishap), {.engine = GetParam()});
    expect_told(ended, -1, where, where);
    expect_told(ended, -1, "this stage is broken", where);
  }
}

TEST_P(PipelineFaults, AKilledStageIsNamedByAllOthers) {
  for (const Mishap& mishap :
       {Mishap{.rank = 0, .step = 2, .microbatch = 2, .act = [] { raise(SIGKILL); }},
        Mishap{.rank = 1, .step = 1, .microbatch = 1, .act = [] { raise(SIGKILL); }},
        Mishap{.rank = 2, .step = 2, .in_backward = true, .microbatch = 1, .act = [] { raise(SIGKILL); }}}) {
    const std::string what = fmt::format("rank {} in step {}", mishap.rank, mishap.step);
    const auto ended = run_processes(3, training_into("1f1b", mishap), {.engine = GetParam()});
    EXPECT_TRUE(WIFSIGNALED(ended[static_cast<size_t>(mishap.rank)].status)) << what;
    expect_told(ended, mishap.rank, fmt::format("rank {} (pid ", mishap.rank), what);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, PipelineFaults, testing::Values("shm", "gloo"),
                         [](const auto& engine) { return std::string(engine.param); });

/// Lets a rank that stops itself go on when all others have ended.
std::function<void(const std::vector<int>&)> continue_at_the_end(int victim) {
  return [victim](const std::vector<int>& pids) {
    const int stopped = pids[static_cast<size_t>(victim)];
    int status = 0;
    waitpid(stopped, &status, WUNTRACED);
    for (const int pid : pids) {
      siginfo_t info = {};
      if (pid != stopped) waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    }
    kill(stopped, SIGCONT);
  };
}

TEST(PipelineTimeouts, AStoppedStageIsNamedByItsNeighbours) {
  const Mishap mishap = {.rank = 1, .step = 2, .microbatch = 2, .act = [] { raise(SIGSTOP); }};
  const auto ended =
      run_processes(3, training_into("1f1b", mishap),
                    {.timeout = std::chrono::milliseconds(3000), .meanwhile = continue_at_the_end(1)});
  expect_told(ended, 1, "rank 1 did not ", "stopped in forward");
  EXPECT_THAT(ended[1].text, HasSubstr("within the timeout")) << "the late rank hears of it";
}

TEST(PipelineTimeouts, ThoseThatAreDoneWithTheStepSayWhereTheyAreToo) {
  // Rank 0 stops before it asks for the last of rank 1's messages; rank 2 is at its next step.
  const Mishap mishap = {
      .rank = 0, .step = 2, .in_backward = true, .microbatch = 0, .act = [] { raise(SIGSTOP); }};
  const auto ended =
      run_processes(3, training_into("gpipe", mishap),
                    {.timeout = std::chrono::milliseconds(3000), .meanwhile = continue_at_the_end(0)});
  EXPECT_THAT(ended[1].text,
              AllOf(HasSubstr("pipeline step 2 on rank 1, action 1SEND_B"), HasSubstr("rank 0 did not ")));
  EXPECT_THAT(ended[2].text, AllOf(HasSubstr("pipeline step 3 on rank 2, before its first action: "),
                                   HasSubstr("rank 0 did not ")));
}

TEST(PipelineShapes, ThatDoNotFitAreToldByAllRanks) {
  // What rank 0 makes, and who cannot take it.
  using Layer = std::function<torch::Tensor(const torch::Tensor&)>;
  const std::vector<std::tuple<Layer, std::string, std::string>> cases = {
      {[](const torch::Tensor& x) { return x.narrow(1, 0, 3); }, "rank 1, action 1F0 (micro-batch 0)", "4x3"},
      {[](const torch::Tensor& x) { return x.to(torch::kDouble); }, "rank 1, action 1F0 (micro-batch 0)",
       "must have the same dtype"},
      {[](const torch::Tensor& x) { return x.to(torch::kLong); }, "rank 0, action 0F0 (micro-batch 0)",
       "Long; hint: gradients flow through floats alone"}};
  for (const auto& [layer, where, cause] : cases) {
    const auto ended = run_processes(3, [layer = layer](Communicator& comm) -> std::string {
      torch::nn::Sequential stage(torch::nn::Linear(4, 4));
      if (comm.rank() == 0) stage->push_back(torch::nn::Functional(layer));
      Pipeline pipeline(stage, comm, mean_squared_error, {.microbatches = 2});
      const auto x = random(1, {8, 4});
      pipeline.step(x, x);
      return "nothing happened";
    });
    expect_told(ended, -1, where, where);
    expect_told(ended, -1, cause, where);
    for (const auto& rank : ended) EXPECT_THAT(rank.text, Not(HasSubstr("frame #"))) << "no stack traces";
  }
}

}  // namespace
}  // namespace lockstep::test
