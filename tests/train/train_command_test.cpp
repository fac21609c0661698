#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "support/child.h"

namespace lockstep::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> train(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {LOCKSTEP_COMMAND, "train"});
  return flags;
}

TEST(TrainCommand, WritesJsonAndNothingElseToStandardOutput) {
  Child child(train({"--steps", "20", "--seed", "3", "--json"}));
  ASSERT_EQ(child.wait(), 0) << child.errors();
  const json document = json::parse(child.output());
  const auto losses = document.at("losses").get<std::vector<double>>();
  const json& summary = document.at("summary");
  ASSERT_EQ(losses.size(), 20U);
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(summary.at("first_loss"), losses.front());
  EXPECT_EQ(summary.at("last_loss"), losses.back());
  EXPECT_LT(summary.at("validation_loss_after"), summary.at("validation_loss_before"));
  EXPECT_EQ(summary.at("steps"), 20);
  EXPECT_EQ(summary.at("interrupted"), false);
  EXPECT_GT(summary.at("samples_per_second"), 0);
  EXPECT_EQ(document.at("options").at("seed"), 3);
  EXPECT_EQ(document.at("options").at("depth"), 16);
  EXPECT_THAT(child.errors(), HasSubstr("step 20/20"));
}

TEST(TrainCommand, RepeatsItselfBitForBitAndWritesPlainLinesWithoutATerminal) {
  const auto run = [] {
    Child child(train({"--steps", "10", "--dim", "16", "--batch", "8", "--json", "losses.json"}));
    EXPECT_EQ(child.wait(), 0) << child.errors();
    EXPECT_THAT(child.output(), HasSubstr("step 10/10  loss "));
    EXPECT_THAT(child.output(), HasSubstr("\nvalidation loss: "));
    EXPECT_THAT(child.output(), Not(HasSubstr("\r")));
    return json::parse(read_file(child.folder() / "losses.json")).at("losses");
  };
  EXPECT_EQ(run(), run());
}

TEST(TrainCommand, EndsAtTheStepOnCtrlCWithTheSummarySoFar) {
  Child child(train({"--steps", "1000000", "--dim", "8", "--json", "losses.json"}));
  ASSERT_TRUE(eventually([&] { return child.output().find("FullMLP of 16 layers") != std::string::npos; }));
  child.send(SIGINT);
  EXPECT_EQ(child.wait(), 130);
  EXPECT_THAT(child.output(), HasSubstr("interrupted after step "));
  EXPECT_THAT(child.output(), HasSubstr("validation loss: "));
  const json document = json::parse(read_file(child.folder() / "losses.json"));
  EXPECT_EQ(document.at("summary").at("interrupted"), true);
  EXPECT_EQ(document.at("summary").at("steps"), document.at("losses").size());
}

TEST(TrainCommand, NamesTheStepAtWhichTheLossIsLost) {
  Child child(train({"--steps", "50", "--dim", "16", "--lr", "1000"}));
  EXPECT_EQ(child.wait(), 1);
  EXPECT_THAT(child.errors(),
              testing::ContainsRegex("loss is (nan|inf) at step [0-9]+ of 50; hint: lower --lr"));
}

class BadFlag : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(BadFlag, IsRefusedByNameAndValueBeforeAnythingStarts) {
  Child child(train(GetParam()));
  EXPECT_EQ(child.wait(), 2);
  EXPECT_THAT(child.errors(), HasSubstr("lockstep train"));
  for (const auto& word : GetParam()) EXPECT_THAT(child.errors(), HasSubstr(word));
  EXPECT_THAT(child.errors(), HasSubstr("hint:"));
  EXPECT_EQ(child.output(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Train, BadFlag,
    testing::Values(std::vector<std::string>{"--steps", "0"}, std::vector<std::string>{"--steps", "ten"},
                    std::vector<std::string>{"--batch", "-1"}, std::vector<std::string>{"--dim", "1.5"},
                    std::vector<std::string>{"--depth", "99999999999999999999"},
                    std::vector<std::string>{"--lr", "nan"}, std::vector<std::string>{"--lr", "0"},
                    std::vector<std::string>{"--seed", "-1"},
                    std::vector<std::string>{"--dim", "65536", "--depth", "10000"},
                    std::vector<std::string>{"--stepz"}));

}  // namespace
}  // namespace lockstep::test
