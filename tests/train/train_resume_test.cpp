// A run that is stopped, killed or cut goes on with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "train/training.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// How ranks share the work.
struct Way {
  const char* name;
  Training::Words flags;
};

class Resume : public testing::TestWithParam<Way> {
 protected:
  Training::Words train(const std::string& run, const Training::Words& more = {}) const {
    Training::Words words = GetParam().flags;
    words.insert(words.end(), {"--steps", "120", "--checkpoint-every", "10"});
    words.insert(words.end(), more.begin(), more.end());
    return training_.train(run, words);
  }
  /// Starts, and sends the signal when some steps are done; the exit code.
  int stop_by(int signal, const std::string& run) {
    const auto child = training_.start(train(run));
    EXPECT_TRUE(eventually([&] { return training_.has_done(run, 12); }))
        << child->output() << child->errors();
    child->send(signal);
    const int code = child->wait();
    output_ = child->output();
    EXPECT_TRUE(child->leaves_nothing());
    return code;
  }
  void expect_same(const std::string& run) const {
    EXPECT_EQ(training_.metrics(run), training_.metrics("whole"));
    EXPECT_EQ(training_.weights(run, 120), training_.weights("whole", 120));
  }

  Training training_;
  std::string output_;
};

TEST_P(Resume, GivesTheBitsOfARunThatNothingStopped) {
  training_.run(train("whole"));
  EXPECT_EQ(stop_by(SIGTERM, "stopped"), 75);
  EXPECT_THAT(output_,
              AllOf(HasSubstr("stopped by SIGTERM after step"), HasSubstr("lockstep train --resume")));
  ASSERT_LT(training_.metrics("stopped").size(), 120U) << "it was not stopped in time";
  training_.run({"train", "--resume", "--run-dir", "stopped"});
  expect_same("stopped");
}

INSTANTIATE_TEST_SUITE_P(Ways, Resume,
                         testing::Values(Way{"alone", {"--nproc-per-node", "1", "--parallel", "none"}},
                                         Way{"ddp", {}}, Way{"accumulate", {"--accumulate", "2"}},
                                         Way{"pipeline", {"--parallel", "pipeline"}}),
                         [](const auto& way) { return way.param.name; });

class Interrupted : public Resume {};

TEST_P(Interrupted, BySignalsSavesAndSaysSoByItsExitCode) {
  EXPECT_EQ(stop_by(SIGUSR1, "usr1"), 75);
  EXPECT_EQ(stop_by(SIGINT, "interrupted"), 130);
  EXPECT_THAT(output_, HasSubstr("stopped by SIGINT"));
  training_.run({"train", "--resume", "--run-dir", "interrupted"});
  EXPECT_EQ(training_.metrics("interrupted").size(), 120U);
}

TEST_P(Interrupted, ByTheDeathOfARankIsStartedAgainWithTheSameBits) {
  training_.run(train("whole"));
  const auto child = training_.start(train("killed", {"--max-restarts", "1"}));
  ASSERT_TRUE(eventually([&] { return training_.has_done("killed", 12); }));
  pid_t rank = -1;
  for (const pid_t pid : child->family()) {
    const std::string words = read_file("/proc/" + std::to_string(pid) + "/cmdline");
    if (words.find("train-rank") != std::string::npos) rank = pid;
  }
  ASSERT_GT(rank, 0);
  ASSERT_EQ(kill(rank, SIGKILL), 0);
  EXPECT_EQ(child->wait(), 0) << child->output() << child->errors();
  EXPECT_THAT(child->errors(), HasSubstr("restart 1 of 1"));
  EXPECT_THAT(child->output(), testing::ContainsRegex("goes on behind step [0-9]+0\n"));
  EXPECT_TRUE(child->leaves_nothing());
  expect_same("killed");
}

INSTANTIATE_TEST_SUITE_P(Ways, Interrupted, testing::Values(Way{"ddp", {}}),
                         [](const auto& way) { return way.param.name; });

TEST(ResumeOther, ATornCheckpointIsRefusedByNameAndTheOneBeforeTaken) {
  Training training;
  training.run(training.train("run", {"--checkpoint-every", "4"}));
  const auto file = training / "run/checkpoints/step_00000012/model-00001-of-00001.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const std::string output = training.run({"train", "--resume", "--run-dir", "run", "--steps", "16"});
  EXPECT_THAT(output, AllOf(HasSubstr("step_00000012"), HasSubstr("model-00001-of-00001.safetensors"),
                            HasSubstr("goes on behind step 8")));
  EXPECT_EQ(training.metrics("run").size(), 16U);
}

TEST(ResumeOther, RefusesFlagsThatWouldMakeItAnotherRun) {
  Training training;
  training.run(training.train("run"));
  training.run({"train", "--resume", "--run-dir", "run", "--seed", "7"}, 2);
  EXPECT_THAT(training.errors(), HasSubstr("--seed 7: the run that goes on has 0"));
  training.run({"train", "--resume", "--run-dir", "run", "--nproc-per-node", "1"}, 2);
  EXPECT_THAT(training.errors(), AllOf(HasSubstr("world_size 1, was 2"), HasSubstr("hint: --inexact")));
}

TEST(ResumeOther, LoadsWhatRunsOfOtherKindsSaved) {
  Training training;
  training.run(training.train("run"));
  const auto go_on = [&](const Training::Words& how, const std::string& steps) {
    Training::Words words = {"train", "--resume", "--run-dir", "run", "--inexact", "--steps", steps};
    words.insert(words.end(), how.begin(), how.end());
    return training.run(words);
  };
  EXPECT_THAT(go_on({"--parallel", "pipeline", "--nproc-per-node", "2"}, "14"),
              HasSubstr("not as it was: parallel pipeline, was ddp"));
  EXPECT_THAT(go_on({"--parallel", "none", "--nproc-per-node", "1"}, "16"),
              HasSubstr("goes on behind step 14"));
  EXPECT_THAT(go_on({"--parallel", "ddp", "--nproc-per-node", "2"}, "18"),
              HasSubstr("goes on behind step 16"));
  EXPECT_EQ(training.metrics("run").size(), 18U);
}

}  // namespace
}  // namespace lockstep::test
