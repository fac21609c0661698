// The text, CSV and JSON forms of pipeline plans.
#include "lockstep/plan/pipeline_text.h"
#include "support/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/error.h"
#include "lockstep/plan/pipeline_json.h"
#include "plan/pipeline_shapes.h"

namespace lockstep::plan {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class PipelineForms : public testing::TestWithParam<Schedule> {};

TEST_P(PipelineForms, ReadBackToTheSamePlan) {
  for (const auto& shape : shapes_of(GetParam(), 6, 13)) {
    const PipelinePlan plan = make_pipeline_plan(GetParam().name, shape);
    ASSERT_EQ(parse_pipeline(to_string(plan)), plan) << shape_text(shape);
    ASSERT_EQ(pipeline_from_csv(to_csv(plan)), plan) << shape_text(shape);
    ASSERT_EQ(pipeline_from_json(to_json(plan)), plan) << shape_text(shape);
  }
}

INSTANTIATE_TEST_SUITE_P(Pipelines, PipelineForms, testing::ValuesIn(schedules()),
                         [](const auto& test) { return test_name(test.param); });

PipelinePlan small_plan() {
  return make_pipeline_plan("1f1b", {.ranks = 2, .microbatches = 2});
}

TEST(PipelineForms, LookLikeThis) {
  EXPECT_EQ(to_string(small_plan()),
            "pipeline 1f1b ranks 2 microbatches 2 chunks 1\n"
            "rank 0\n"
            "  0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
            "rank 1\n"
            "  1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1\n");
  EXPECT_EQ(to_csv(small_plan()),
            "pipeline,1f1b,ranks,2,microbatches,2,chunks,1\n"
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  const auto document = json::parse(to_json(small_plan()));
  EXPECT_EQ(document["schedule"], "1f1b");
  EXPECT_EQ(document["ranks"], 2);
  const json expected = {{"kind", "RECV_F"}, {"stage", 1}, {"microbatch", 0}, {"text", "1RECV_F0"}};
  EXPECT_EQ(document["actions"][1][0], expected);
}

TEST(PipelineForms, KeepRanksWithoutActions) {
  const PipelinePlan empty{.schedule = "none", .shape = {.ranks = 3}, .actions = {{}, {}, {}}};
  EXPECT_EQ(parse_pipeline(to_string(empty)), empty);
  EXPECT_EQ(pipeline_from_csv(to_csv(empty)), empty);
  EXPECT_EQ(pipeline_from_json(to_json(empty)), empty);
}

TEST(PipelineText, IgnoresCommentsBlankLinesIndentationAndWhereLinesBreak) {
  EXPECT_EQ(
      parse_pipeline("# a plan\n\npipeline  1f1b ranks 2 microbatches 2 chunks 1 # small\r\nrank 0\n0F0\n\t"
                     "0SEND_F0 0F1\n# nothing\n0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\nrank 1\n1RECV_F0 1F0 1B0 "
                     "1SEND_B0\n1RECV_F1 1F1 1B1 1SEND_B1"),
      small_plan());
}

TEST(PipelineCsv, IgnoresEmptyCellsAndLinesAfterTheEnd) {
  EXPECT_EQ(pipeline_from_csv("pipeline,1f1b,ranks,2,microbatches,2,chunks,1\r\n"
                              "0F0,0SEND_F0,,0F1, 0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,,\r\n"
                              ",,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\r\n\r\n\n"),
            small_plan());
}

TEST(PipelineText, NamesLineAndReason) {
  const std::string header = "pipeline mine ranks 2 microbatches 2 chunks 1\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", "line 1: no plan; hint: the first line is 'pipeline SCHEDULE ranks N ...'"},
      {"\n#\n", "line 2: no plan"},
      {"plan all_reduce", "line 1: 'plan' instead of 'pipeline'"},
      {"pipeline", "line 1: ends before the schedule"},
      {"pipeline a/b", "line 1: 'a/b' is no schedule's name"},
      {"pipeline mine ranks 0", "line 1: number of ranks 0 is not between 1 and 32768"},
      {"pipeline mine ranks 32769", "line 1: number of ranks 32769 is not between"},
      {"pipeline mine ranks two", "line 1: 'two' is no number of ranks"},
      {"pipeline mine ranks 2 microbatches 99999999999",
       "line 1: number of micro-batches 99999999999 is not"},
      {"pipeline mine ranks 2 microbatches 1 chunks 1 more", "line 1: 'more' after the end"},
      {"pipeline mine ranks 32768 microbatches 1000000000 chunks 1000000000",
       "line 1: 32768 ranks, 1000000000 micro-batches and 1000000000 chunks are more than 4000000 actions"},
      {header + "0F0", "line 2: an action before 'rank 0'"},
      {header + "rank 1", "line 2: rank 1 instead of 0"},
      {header + "rank 0\nrank 1\nrank 2", "line 4: a rank after the last of 2"},
      {header + "rank 0\n", "line 2: the plan ends after 1 of 2 ranks"},
      {header + "rank 0\nF0", "line 3: 'F0' is no stage"},
      {header + "rank 0\n0F0 0X0", "line 3: action '0X0': 'X' is unknown; hint: one of F, B, I, W, SEND_F"},
      {header + "rank 0\n0f0", "line 3: action '0f0': 'f' is unknown"},
      {header + "rank 0\n00", "line 3: action '00': '' is unknown"},
      {header + "rank 0\n0F", "line 3: '' is no micro-batch"},
      {header + "rank 0\n0F-1", "line 3: action '0F-1': 'F-' is unknown"},
      {header + "rank 0\n-1F0", "line 3: stage -1 is not between 0 and 1000000000"},
      {header + "rank 0\n0F99999999999", "line 3: micro-batch 99999999999 is not between 0 and 1000000000"},
      {header + "rank 0\n0F0x", "line 3: 'x' after the action"},
      {header + "rank 0\n0F0\a", "line 3: '?' after the action"},
      {header + std::string(1001, ' '), "line 2: more than 1000 characters"},
  };
  for (const auto& [text, problem] : cases) {
    const std::string found = test::refusal_of([&, &input = text] { parse_pipeline(input); });
    EXPECT_THAT(found, StartsWith("pipeline text " + problem)) << text;
  }
}

TEST(PipelineCsv, NamesLineAndReason) {
  const std::string header = "pipeline,mine,ranks,2,microbatches,2,chunks,1\n";
  const auto of = [](const std::string& text) { return test::refusal_of([&] { pipeline_from_csv(text); }); };
  EXPECT_THAT(of(""), StartsWith("pipeline csv line 1: no plan"));
  EXPECT_EQ(of("0F0,0B0\n"), "pipeline csv line 1: '0F0' instead of 'pipeline'");
  EXPECT_EQ(of(header + "0F0\n"), "pipeline csv line 2: the plan ends after 1 of 2 ranks");
  EXPECT_EQ(of(header + "\n\n0F0\n"), "pipeline csv line 4: a rank after the last of 2");
  EXPECT_THAT(of(header + "0F0\n1F0,1Z0"), StartsWith("pipeline csv line 3: action '1Z0': 'Z' is unknown"));
}

TEST(PipelineForms, AreRefusedAboveTheMostActions) {
  std::string row;
  for (int64_t i = 0; i <= kMostPipelineActions; ++i) row += "0F0,";
  EXPECT_EQ(
      test::refusal_of([&] { pipeline_from_csv("pipeline,mine,ranks,1,microbatches,1,chunks,1\n" + row); }),
      "pipeline csv line 2: more than 4000000 actions");
}

TEST(PipelineJson, RefusesByPlaceAndReason) {
  const auto good = json::parse(to_json(small_plan()));
  const auto of = [](const json& document) {
    return test::refusal_of([&] { pipeline_from_json(document.dump()); });
  };
  const auto with = [&](const std::string& pointer, const json& value) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    return of(bad);
  };
  ASSERT_EQ(of(good), "accepted");
  EXPECT_EQ(of(json::array()), "pipeline json /: is no object");
  EXPECT_EQ(of(json::object()), "pipeline json /: 'schedule' is missing");
  EXPECT_EQ(with("/schedule", "a b\n"), "pipeline json /schedule: 'a b?' is no schedule's name");
  EXPECT_EQ(with("/ranks", 0), "pipeline json /ranks: 0 is not between 1 and 32768");
  EXPECT_EQ(with("/ranks", 2.5), "pipeline json /ranks: is no whole number");
  EXPECT_EQ(with("/ranks", 3), "pipeline json /actions: 2 ranks instead of 3");
  EXPECT_EQ(with("/microbatches", 18446744073709551615U),
            "pipeline json /microbatches: 18446744073709551615 is not between 1 and 1000000000");
  EXPECT_THAT(with("/chunks", 1000000000), HasSubstr("are more than 4000000 actions"));
  EXPECT_EQ(with("/actions", 7), "pipeline json /actions: is no array");
  EXPECT_EQ(with("/actions/1", nullptr), "pipeline json /actions/1: is no array");
  EXPECT_EQ(with("/actions/1/0", "1F0"), "pipeline json /actions/1/0: is no object");
  EXPECT_THAT(with("/actions/1/0/kind", "f"),
              StartsWith("pipeline json /actions/1/0/kind: 'f' is unknown; hint: one of F, B, I, W, SEND_F"));
  EXPECT_EQ(with("/actions/1/0/stage", -1),
            "pipeline json /actions/1/0/stage: -1 is not between 0 and 1000000000");
  EXPECT_EQ(with("/actions/1/0/stage", 7),
            "pipeline json /actions/1/0/text: '1RECV_F0' instead of '7RECV_F0', as the other fields say");
}

}  // namespace
}  // namespace lockstep::plan
