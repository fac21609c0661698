// Each flag of `lockstep train` that decides numbers decides them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "train/training.h"

namespace lockstep::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class TrainFlags : public testing::Test {
 protected:
  TrainFlags() {
    // Nothing is dropped: micro-batches and stages would drop other numbers.
    auto config = json::parse(read_file(training_ / "small.json"));
    config["hidden_dropout_prob"] = config["attention_probs_dropout_prob"] = 0;
    std::ofstream(training_ / "plain.json") << config;
  }
  /// The metrics of a run of four steps.
  std::vector<json> run(const std::string& name, const Training::Words& more = {}) {
    Training::Words words = {"--config", "plain.json", "--steps", "4"};
    words.insert(words.end(), more.begin(), more.end());
    output_ = training_.run(training_.train(name, words));
    std::vector<json> steps;
    for (const auto& line : training_.metrics(name)) steps.push_back(json::parse(line));
    return steps;
  }
  static double number(const json& step, const char* name) { return step.at(name).get<double>(); }

  Training training_;
  std::string output_;
};

TEST_F(TrainFlags, LrAndWarmupMakeTheLearningRateOfEachStep) {
  const auto steps = run("run", {"--lr", "0.02", "--warmup", "4"});
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(number(steps[i], "lr"), 0.02 * static_cast<double>(i + 1) / 4, 1e-12) << i;
  EXPECT_GT(number(run("sooner", {"--lr", "0.02", "--warmup", "0"})[0], "lr"), 0.0199);
}

TEST_F(TrainFlags, ClipDecayAndSeedChangeWhatIsLearned) {
  const auto plain = run("plain");
  const auto same_first = [&](const std::vector<json>& other) {
    EXPECT_EQ(other[0].at("loss"), plain[0].at("loss")) << "the first step has learned nothing yet";
    EXPECT_EQ(other[0].at("gradient_norm"), plain[0].at("gradient_norm")) << "told as it was";
    return other[3].at("loss") == plain[3].at("loss");
  };
  EXPECT_TRUE(same_first(run("again")));
  EXPECT_FALSE(same_first(run("clipped", {"--clip", "1e-6"})));
  EXPECT_FALSE(same_first(run("decayed", {"--weight-decay", "0.9"})));
  EXPECT_NE(run("seeded", {"--seed", "5"})[0].at("loss"), plain[0].at("loss"));
}

TEST_F(TrainFlags, AccumulateAndScheduleCutAStepAndLearnTheSame) {
  const auto plain = run("plain");
  const auto expect_near = [&](const std::vector<json>& other) {
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(number(other[i], "loss"), number(plain[i], "loss"), 1e-4) << i;
      EXPECT_NEAR(number(other[i], "gradient_norm"), number(plain[i], "gradient_norm"), 1e-3) << i;
    }
  };
  expect_near(run("cut", {"--accumulate", "2"}));
  EXPECT_EQ(json::parse(read_file(training_ / "cut/run.json")).at("accumulate"), 2);
  for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved"}) {
    expect_near(run(schedule, {"--parallel", "pipeline", "--schedule", schedule}));
    EXPECT_THAT(output_, HasSubstr("Pipeline (" + std::string(schedule) + ") on 2 ranks"));
  }
}

}  // namespace
}  // namespace lockstep::test
