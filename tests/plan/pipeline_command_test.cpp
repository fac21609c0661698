// `lockstep plan pipeline` and `lockstep simulate pipeline` as a user meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/plan/pipeline_json.h"
#include "lockstep/plan/pipeline_text.h"
#include "support/child.h"

namespace lockstep::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Finished lockstep(std::vector<std::string> words) {
  words.insert(words.begin(), LOCKSTEP_COMMAND);
  return run_to_end(words);
}

Finished plan_pipeline(std::vector<std::string> words) {
  words.insert(words.begin(), {"plan", "pipeline"});
  return lockstep(words);
}

Finished simulate_pipeline(std::vector<std::string> words) {
  words.insert(words.begin(), {"simulate", "pipeline"});
  return lockstep(words);
}

TEST(PlanPipelineCommand, PrintsGridVerdictAndCosts) {
  const auto result = plan_pipeline({"--schedule", "1f1b", "--stages", "4", "--microbatches", "8"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(
      result.output,
      AllOf(HasSubstr("rank 3 | .  .  .  F0 B0--- F1 B1---"), HasSubstr("proved   every stage runs"),
            HasSubstr("sends    blocking        deadlock: rank 0 waits in action 7 (0SEND_F3) for rank 1\n"),
            HasSubstr("         forward async   completes\n"), HasSubstr("makespan        33,"),
            HasSubstr("bubble          9: 27.3% of the total, 37.5% of the ideal"),
            HasSubstr("activations     4 3 2 1 by rank")));
}

TEST(PlanPipelineCommand, ListsTheSchedules) {
  const auto result = plan_pipeline({});
  EXPECT_EQ(result.exit_code, 0);
  for (const auto& schedule : plan::schedules()) {
    EXPECT_THAT(result.output, HasSubstr("  " + std::string(schedule.name) + "  "));
  }
  EXPECT_EQ(json::parse(plan_pipeline({"--json"}).output).size(), plan::schedules().size());
}

TEST(PlanPipelineCommand, GivesInterleavedTwoChunksUnlessToldOtherwise) {
  EXPECT_THAT(plan_pipeline({"--schedule", "interleaved"}).output, HasSubstr(", 2 chunks on each rank\n"));
  EXPECT_THAT(plan_pipeline({"--schedule", "interleaved", "--chunks", "3"}).output,
              HasSubstr(", 3 chunks on each"));
}

TEST(PlanPipelineCommand, ReadsBackItsOwnForms) {
  const TemporaryFolder folder;
  for (const char* form : {"--text", "--csv", "--json"}) {
    const auto written = plan_pipeline({"--schedule", "zb-h1", "--stages", "3", "--microbatches", "4", form});
    ASSERT_EQ(written.exit_code, 0) << written.errors;
    std::ofstream(folder / "plan") << written.output;
    const auto read = plan_pipeline({"--file", (folder / "plan").string(), form});
    EXPECT_EQ(read.exit_code, 0) << read.errors;
    EXPECT_EQ(read.output, written.output);
  }
}

TEST(PlanPipelineCommand, WritesJsonWithTimesAndVerdict) {
  const auto document = json::parse(
      plan_pipeline({"--schedule", "gpipe", "--stages", "2", "--microbatches", "2", "--json"}).output);
  EXPECT_EQ(plan::pipeline_from_json(document.dump()),
            plan::make_pipeline_plan("gpipe", {.ranks = 2, .microbatches = 2}));
  EXPECT_EQ(document["actions"][1][1]["text"], "1F0");
  EXPECT_EQ(document["actions"][1][1]["start"], 1);
  EXPECT_EQ(document["actions"][1][1]["end"], 2);
  EXPECT_EQ(document["verdict"]["ok"], true);
  EXPECT_EQ(document["verdict"]["peak_activations"], json({2, 2}));
  const json blocking = {{"sends", "blocking"}, {"completes", true}, {"blocked", json::array()}};
  EXPECT_EQ(document["verdict"]["sends"][0], blocking);
}

TEST(PlanPipelineCommand, RefusesABadPlanWithExit1AndTheVerifiersWords) {
  const TemporaryFolder folder;
  std::string text = plan::to_string(plan::make_pipeline_plan("1f1b", {.ranks = 2, .microbatches = 2}));
  text.replace(text.find("0RECV_B0"), 8, "        ");
  std::ofstream(folder / "plan") << text;
  const std::string path = (folder / "plan").string();
  const auto result = plan_pipeline({"--file", path});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("refused  rank 0 action 4 (0B0): its gradient has not arrived"),
                                   Not(HasSubstr("cycle"))));
  EXPECT_EQ(json::parse(plan_pipeline({"--file", path, "--json"}).output)["verdict"]["ok"], false);
}

TEST(PlanPipelineCommand, SaysWhenAGridWouldBeTooLarge) {
  const auto result = plan_pipeline({"--schedule", "gpipe", "--stages", "100"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("(a grid of 100 ranks and 321 cycles is too large to read"),
                                   HasSubstr("proved")));
}

TEST(PlanPipelineCommand, IsToldOfByTheHelpOfPlanAndSimulate) {
  EXPECT_THAT(lockstep({"plan", "--help"}).output, HasSubstr("see lockstep plan pipeline --help"));
  EXPECT_THAT(lockstep({"simulate", "--help"}).output, HasSubstr("see lockstep simulate pipeline --help"));
  EXPECT_THAT(lockstep({"--help"}).output,
              AllOf(HasSubstr("  plan pipeline "), HasSubstr("  simulate pipeline ")));
  EXPECT_THAT(plan_pipeline({"--help"}).output, HasSubstr("--schedule NAME"));
}

TEST(PlanPipelineCommand, IsPointedOutToThoseWhoTakeItForACollective) {
  for (const char* verb : {"plan", "simulate"}) {
    for (const auto& words :
         {std::vector<std::string>{verb, "Pipeline"}, {verb, "--world", "4", "pipeline"}}) {
      const auto result = lockstep(words);
      EXPECT_EQ(result.exit_code, 2);
      EXPECT_THAT(result.errors, HasSubstr("hint: lockstep " + std::string(verb) + " pipeline --help"));
    }
  }
}

TEST(PlanPipelineCommand, RefusesBadUsageWithAHint) {
  const TemporaryFolder folder;
  const std::string path = (folder / "plan").string();
  std::ofstream(folder / "plan") << "plan all_reduce ring world 2\n";
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--schedule", "2f2b"}, "schedule '2f2b': unknown; hint: one of naive, gpipe"},
      {{"--schedule", "1f1b", "--stages", "0"}, "--stages: 0 is not between 1 and 32768"},
      {{"--schedule", "1f1b", "--microbatches", "many"}, "--microbatches: 'many' is not a whole number"},
      {{"--schedule", "1f1b", "--chunks", "2"},
       "--chunks 2: 1f1b has one chunk on each rank; hint: interleaved has several"},
      {{"--schedule", "interleaved", "--chunks", "1"}, "interleaved: 1 chunk; hint: 2 or more, or 1f1b"},
      {{"--schedule", "zb-h2", "--microbatches", "6"},
       "zb-h2: 6 micro-batches on 4 ranks, fewer than 7; hint: 7"},
      {{"--schedule", "gpipe", "--stages", "9999", "--microbatches", "9999"},
       "more than 4000000 actions; hint:"},
      {{"--text", "--csv"}, "--text and --csv: one form at a time; hint:"},
      {{"--schedule", "gpipe", "--file", path}, "--schedule gpipe: --file brings its own plan; hint:"},
      {{"--file", path}, "--file " + path + ": pipeline text line 1: 'plan' instead of 'pipeline'"},
      {{"--world", "4"}, "unknown flag --world; hint:"},
      {{"1f1b"}, "1f1b; hint: see lockstep plan pipeline --help"},
  };
  for (const auto& [words, problem] : cases) {
    const auto result = plan_pipeline(words);
    EXPECT_EQ(result.exit_code, 2) << problem;
    EXPECT_THAT(result.errors, AllOf(HasSubstr("lockstep plan pipeline: "), HasSubstr(problem)));
  }
}

TEST(SimulatePipelineCommand, PrintsOneScheduleByRank) {
  const auto result = simulate_pipeline({"--schedule", "1f1b", "--stages", "4", "--microbatches", "8"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("1f1b               1           33            9     27.3%     37.5%"),
                    HasSubstr("     3        72.7%            1\n")));
}

TEST(SimulatePipelineCommand, WritesAnObjectForOneAndAnArrayForSeveral) {
  const std::vector<std::string> shape = {"--stages", "2", "--microbatches", "4", "--f", "1", "--i", "1",
                                          "--w",      "2", "--json"};
  const auto with = [&](const std::string& schedules) {
    auto words = shape;
    words.insert(words.end(), {"--schedule", schedules});
    return json::parse(simulate_pipeline(words).output);
  };
  const json one = with("GPipe");
  EXPECT_EQ(one["schedule"], "gpipe");
  EXPECT_EQ(one["makespan"], 20);
  EXPECT_EQ(one["bubble"], 4);
  EXPECT_EQ(one["bubble_of_total"], 0.2);
  EXPECT_EQ(one["bubble_of_ideal"], 0.25);
  EXPECT_EQ(one["utilisation"], json({0.8, 0.8}));
  EXPECT_EQ(one["peak_activations"], json({4, 4}));
  const json two = with("gpipe,interleaved");
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0], one);
  EXPECT_EQ(two[1]["chunks"], 2);
  EXPECT_EQ(with("all").size(), plan::schedules().size());
}

TEST(SimulatePipelineCommand, LeavesOutOfAllWhatTheShapeDoesNotAllowAndSaysWhy) {
  const auto result = simulate_pipeline({"--stages", "4", "--microbatches", "6", "--comm", "0.1"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("\nzb-h1 "), Not(HasSubstr("\nzb-h2 ")), HasSubstr("a message 0.1\n"),
                    HasSubstr("left out: zb-h2: 6 micro-batches on 4 ranks, fewer than 7")));
}

TEST(SimulatePipelineCommand, RefusesBadUsageWithAHint) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--schedule", "gpipe,ring"}, "schedule 'ring': unknown; hint: one of naive"},
      {{"--schedule", "gpipe,"}, "schedule '': unknown; hint: one of naive"},
      {{"--schedule", "gpipe,1f1b", "--chunks", "2"}, "--chunks 2: gpipe has one chunk on each rank; hint:"},
      {{"--schedule", "gpipe,zb-h1", "--microbatches", "4"},
       "zb-h1: 4 micro-batches on 8 ranks, fewer than 8; hint:"},
      {{"--stages", "9999", "--microbatches", "9999"}, "more than 4000000 actions; hint:"},
      {{"--f", "-1"}, "--f: -1 is not between 0"},
      {{"--w", "nan"}, "--w: nan is not between 0"},
      {{"--comm", "fast"}, "--comm: 'fast' is not a number"},
      {{"--alpha-us", "1"}, "unknown flag --alpha-us"},
  };
  for (const auto& [words, problem] : cases) {
    const auto result = simulate_pipeline(words);
    EXPECT_EQ(result.exit_code, 2) << problem;
    EXPECT_THAT(result.errors, AllOf(HasSubstr("lockstep simulate pipeline: "), HasSubstr(problem)));
  }
}

}  // namespace
}  // namespace lockstep::test
