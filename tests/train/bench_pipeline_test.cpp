// `lockstep bench pipeline` as a user meets it: checked losses and counts, whatever the times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/bench.h"
#include "support/child.h"
#include "support/temporary_folder.h"

namespace lockstep::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> bench(const std::vector<std::string>& words) {
  return bench_command("pipeline", words);
}

TEST(BenchPipeline, RowsHaveTheKeysThatOtherProgramsReadAndLossesAgree) {
  Child child(bench({"--stages", "2", "--microbatches", "3", "--model", "mlp:16x5", "--batch", "7",
                     "--rounds", "2", "--steps", "2", "--json"}));
  ASSERT_EQ(child.wait(), 0) << child.errors();
  const auto document = json::parse(child.output());
  const json& rows = document["rows"];
  ASSERT_THAT(names_of(rows, "schedule"), ElementsAre("naive", "gpipe", "1f1b", "interleaved"));
  for (const auto& row : rows) {
    for (const char* key : {"system", "model", "stages", "microbatches", "chunks", "batch", "step_ms",
                            "predicted_ms", "bubble_of_total", "predicted_bubble_of_total", "utilisation",
                            "predicted_utilisation", "peak_activations", "predicted_peak_activations",
                            "peak_bytes", "us_per_action_beyond_prediction", "loss"})
      EXPECT_TRUE(row.contains(key)) << key;
    EXPECT_EQ(row["peak_activations"], row["predicted_peak_activations"]) << row["schedule"];
    EXPECT_GT(row["loss"], 0);
    EXPECT_NEAR(row["loss"].get<double>(), rows[0]["loss"].get<double>(), 1e-5);
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_GE(row["peak_bytes"][rank], row["weight_bytes"][rank]) << "gradients are as large as weights";
    }
    for (const auto& part : row["utilisation"]) {
      EXPECT_GT(part.get<double>(), 0);
      EXPECT_LE(part.get<double>(), 1);
    }
  }
  EXPECT_THAT(names_of(document["ratios"], "faster"), ElementsAre("gpipe", "1f1b", "interleaved"));
}

TEST(BenchPipeline, SleepingStagesHoldAsManyActivationsAsTheTableSays) {
  Child child(bench({"--stages", "4", "--microbatches", "6", "--sleep", "0.2,0.2,0.2", "--rounds", "1",
                     "--steps", "1", "--json"}));
  ASSERT_EQ(child.wait(), 0) << child.errors();
  const auto rows = json::parse(child.output())["rows"];
  EXPECT_EQ(rows[0]["peak_activations"], json({1, 1, 1, 1}));
  EXPECT_EQ(rows[1]["peak_activations"], json({6, 6, 6, 6}));
  EXPECT_EQ(rows[2]["peak_activations"], json({4, 3, 2, 1}));
  EXPECT_EQ(rows[3]["peak_activations"], rows[3]["predicted_peak_activations"]);
  // Of the simulator's own clock: (M + P - 1) T, and a rank works for M T at least.
  EXPECT_NEAR(rows[2]["predicted_ms"].get<double>(), 9 * 0.6, 1e-9);
  EXPECT_GE(rows[2]["step_ms"].get<double>(), 9 * 0.6) << "it slept too little";
}

TEST(BenchPipeline, ATraceHasPlanPredictionAndRunOfEveryRank) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "trace.json";
  Child child(bench({"--stages", "2", "--microbatches", "2", "--sleep", "1,1,1", "--rounds", "1", "--steps",
                     "1", "--schedules", "1f1b,gpipe", "--trace", file.string()}));
  ASSERT_EQ(child.wait(), 0) << child.errors();
  std::ifstream stream(file);
  std::set<std::string> rows, schedules;
  std::map<std::pair<int, int>, std::vector<std::string>> computed;  // by schedule and row
  const auto document = json::parse(stream);
  for (const auto& event : document["traceEvents"]) {
    if (event["name"] == "thread_name") rows.insert(event["args"]["name"]);
    if (event["name"] == "process_name") schedules.insert(event["args"]["name"]);
    if (event.value("cat", "") == "compute") computed[{event["pid"], event["tid"]}].push_back(event["name"]);
  }
  EXPECT_THAT(rows, ElementsAre("rank 0 plan", "rank 0 predicted", "rank 0 run", "rank 1 plan",
                                "rank 1 predicted", "rank 1 run"));
  EXPECT_THAT(schedules, ElementsAre("1f1b", "gpipe"));
  for (const int row : {4, 5, 6}) {
    EXPECT_THAT((computed[{1, row}]), ElementsAre("1F0", "1B0", "1F1", "1B1")) << "1f1b, row " << row;
    EXPECT_THAT((computed[{2, row}]), ElementsAre("1F0", "1F1", "1B0", "1B1")) << "gpipe, row " << row;
  }
}

TEST(BenchPipeline, TheTableSaysWhatWasPredictedAndWhatWasMeasured) {
  Child child(bench({"--model", "mlp:16x4", "--batch", "8", "--microbatches", "2", "--rounds", "1", "--steps",
                     "1", "--engine", "gloo", "--schedules", "naive,1f1b"}));
  ASSERT_EQ(child.wait(), 0) << child.errors();
  for (const char* text : {"pipeline of 2 ranks, 2 micro-batches over gloo: mlp:16x4, batch 8; 1 round",
                           "losses of all agree within 0.001", "predicted", "bubble", "utilisation",
                           "activations", "naive takes ", "times as long as 1f1b; predicted "})
    EXPECT_THAT(child.output(), HasSubstr(text));
  EXPECT_TRUE(child.leaves_nothing());
}

struct Mistake {
  std::vector<std::string> words;
  std::string expected;
};

TEST(BenchPipeline, MistakesAreRefusedByValueBeforeARankStarts) {
  const std::vector<Mistake> mistakes = {
      {{"--schedules", "1f2b"},
       "schedule '1f2b': unknown; hint: one of naive, gpipe, 1f1b, interleaved; did you mean 1f1b?"},
      {{"--schedules", "zb-h1"}, "--schedules zb-h1: splits backward in two"},
      {{"--schedules", "1f1b", "--chunks", "2"}, "--chunks 2: 1f1b has one chunk on each rank"},
      {{"--stages", "65"}, "--stages 65: each is a process here"},
      {{"--stages", "2", "--model", "mlp:16x3"}, "--stages 2: 4 stages of interleaved have no layer each"},
      {{"--microbatches", "8", "--batch", "7"}, "--microbatches 8: a batch of 7 has no sample for each"},
      {{"--sleep", "4,4"}, "--sleep '4,4': not three times; hint: milliseconds of F, I and W"},
      {{"--sleep", "4,x,4"}, "--sleep '4,x,4': not three times"},
      {{"--sleep", "4,4,-1"}, "--sleep '4,4,-1': not three times"},
      {{"--model", "mlp:128"}, "--model 'mlp:128': not a model"},
      {{"--model", "mlp:8x8,mlp:16x8"}, "--model 'mlp:8x8,mlp:16x8': one model at a time"},
      {{"--peers", "deepspeed"}, "--peers 'deepspeed': there is no such peer; hint: pytorch"},
      {{"--peers", "pytorch", "--sleep", "1,1,1"}, "--peers pytorch: takes no --sleep"},
      {{"--model", "mlp:16384x1000"}, "need about"},
      {{"--trace", "/no/such/folder/file"}, "--trace /no/such/folder/file: No such file or directory"},
  };
  for (const auto& [words, expected] : mistakes) {
    Child child(bench(words));
    EXPECT_EQ(child.wait(), 2) << expected;
    EXPECT_THAT(child.errors(), HasSubstr(expected));
    EXPECT_EQ(child.output(), "") << expected;
  }
}

TEST(BenchPipeline, SigtermEndsItWithNothingLeft) {
  const Ended ended = stop_at_work(bench({"--sleep", "1,1,1", "--rounds", "1000"}), SIGTERM);
  EXPECT_EQ(ended.exit_code, 128 + SIGTERM) << ended.errors;
  EXPECT_TRUE(ended.left_nothing);
}

}  // namespace
}  // namespace lockstep::test
