// `lockstep bench allreduce` and the like, as a user meets them: checked results, whatever the times.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/bench.h"
#include "support/child.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

TEST(BenchLauncher, PrintsWhenADeathIsNoticedAndWhenAllAreGoneWithTheirSpread) {
  const TemporaryFolder folder;  // without a front door, which would build
  const auto bin = folder / "build/release/bin";
  std::filesystem::create_directories(bin);
  const std::filesystem::path built = std::filesystem::path(LOCKSTEP_COMMAND).parent_path();
  for (const char* name : {"lockstep", "lockstep-blas-probe"})
    std::filesystem::copy_file(built / name, bin / name);
  const auto result =
      run_to_end({(bin / "lockstep").string(), "bench", "launcher", "--rounds", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto document = nlohmann::json::parse(result.output);
  ASSERT_EQ(document["launchers"].size(), 1U);
  for (const char* what : {"notice_ms", "gone_ms", "empty_job_ms"}) {
    const auto& times = document["launchers"][0][what];
    EXPECT_GT(times["low"], 0) << what;
    EXPECT_LE(times["low"], times["median"]) << what;
    EXPECT_LE(times["median"], times["high"]) << what;
  }
  EXPECT_TRUE(document["front_door_ms"].is_null());
}

TEST(BenchCollectives, ASignalToStopLeavesNothing) {
  for (const auto& [engine, signal] : {std::pair("shm", SIGHUP), std::pair("mpi", SIGINT)}) {
    const Ended ended = stop_at_work(
        bench_command("allreduce", {"--world", "2", "--rounds", "1000", "--engines", engine}), signal);
    EXPECT_EQ(ended.exit_code, 128 + signal) << engine << ": " << ended.errors;
    EXPECT_TRUE(ended.left_nothing) << engine;
  }
}

TEST(BenchCollectives, EveryOneOfThemChecksItsResults) {
  for (const char* what : {"allreduce", "broadcast", "allgather", "reducescatter", "alltoall", "pingpong"}) {
    Child child(
        {LOCKSTEP_COMMAND, "bench", what, "--world", "2", "--rounds", "1", "--sizes", "4,100KB", "--json"});
    ASSERT_EQ(child.wait(), 0) << what << ": " << child.errors();
    const auto document = nlohmann::json::parse(child.output());
    ASSERT_EQ(document["rows"].size(), 2U) << what;
    for (const auto& row : document["rows"]) {
      EXPECT_EQ(row["wrong"], 0) << what;
      EXPECT_EQ(row["engine"], "shm");
      EXPECT_GT(row["time_us"], 0);
      EXPECT_GT(row["predicted_us"], 0) << what;
    }
  }
}

TEST(BenchCollectives, PeersAreMeasuredInTheSameRounds) {
  std::vector<std::string> peers = {"gloo"};
#ifdef LOCKSTEP_HAS_MPI
  peers.emplace_back("mpi");
#endif
  Child child({LOCKSTEP_COMMAND, "bench", "allreduce", "--engines",
               fmt::format("shm,{}", fmt::join(peers, ",")), "--staged", "--rounds", "2", "--sizes", "1KiB",
               "--world", "3"});
  ASSERT_EQ(child.wait(), 0) << child.errors();
  for (const auto& peer : peers) {
    EXPECT_THAT(child.output(), HasSubstr(fmt::format("{:<7} native", peer)));
    EXPECT_THAT(child.output(), HasSubstr(fmt::format("1024 bytes: {} takes ", peer)));
  }
}

TEST(BenchCollectives, RowsHaveTheKeysThatOtherProgramsRead) {
  Child child({LOCKSTEP_COMMAND, "bench", "allreduce", "--rounds", "1", "--sizes", "64KiB", "--json"});
  ASSERT_EQ(child.wait(), 0) << child.errors();
  const auto document = nlohmann::json::parse(child.output());
  for (const char* key : {"collective", "engine", "algorithm", "world", "bytes", "time_us", "algbw_gbps",
                          "busbw_gbps", "wrong", "predicted_us"}) {
    EXPECT_TRUE(document["rows"][0].contains(key)) << key;
  }
  EXPECT_EQ(document["rows"][0]["plan"], "push");
  EXPECT_GT(document["copies"][0]["one_core_gbps"], 0);
}

TEST(BenchCollectives, TheTableSaysWhatItsColumnsMean) {
  Child child({LOCKSTEP_COMMAND, "bench", "allreduce", "--rounds", "1", "--sizes", "64KiB"});
  ASSERT_EQ(child.wait(), 0) << child.errors();
  for (const char* text : {"predicted us", "copy bandwidth of this machine at 65536 bytes",
                           "predicted: by a model", "of floor: the share of the time"}) {
    EXPECT_THAT(child.output(), HasSubstr(text));
  }
}

TEST(BenchFit, JudgesTheModelBySizesHeldOutAndSavesIt) {
  const TemporaryFolder folder;
  const std::string model = (folder / "model.json").string();
  const std::string json = (folder / "fit.json").string();
  Child child({LOCKSTEP_COMMAND, "bench", "--fit", "--engines", "shm,gloo", "--rounds", "1", "--sizes",
               "16,64,256,1KiB,4KiB", "--save", model, "--json", json});
  ASSERT_EQ(child.wait(), 0) << child.errors();
  EXPECT_THAT(child.output(), HasSubstr("shm: median error "));
  EXPECT_THAT(child.output(), HasSubstr("(to reach: 1.15"));
  const auto document = nlohmann::json::parse(read_file(json));
  EXPECT_EQ(document["wrong"], 0);
  for (const char* form : {"shm push", "shm one-shot", "shm messages", "gloo messages", "gloo native"})
    EXPECT_TRUE(document["forms"].contains(form)) << form;
  for (const auto& row : document["held_out"]) {
    EXPECT_THAT(row["bytes"], testing::AnyOf(64, 1024)) << "every second size";
    EXPECT_GT(row["predicted_us"], 0);
  }
  ASSERT_EQ(document["engines"].size(), 2U);
  for (const auto& engine : document["engines"]) {
    EXPECT_GE(engine["median_error"], 0);
    EXPECT_GE(engine["median_regret"], 1);
    EXPECT_EQ(engine["picks"].size(), 2U);
  }

  Child bench({LOCKSTEP_COMMAND, "bench", "allreduce", "--rounds", "1", "--sizes", "512", "--model", model});
  ASSERT_EQ(bench.wait(), 0) << bench.errors();
  EXPECT_THAT(bench.output(), HasSubstr("by the model in " + model + ", fitted on 2 ranks"));
}

TEST(BenchCollectives, AModelThatKnowsNothingOfARowIsRefused) {
  const TemporaryFolder folder;
  const std::string model = (folder / "model.json").string();
  std::ofstream(model) << R"({"world": 2, "forms": {}})";
  Child child({LOCKSTEP_COMMAND, "bench", "allreduce", "--sizes", "4KiB", "--model", model});
  EXPECT_EQ(child.wait(), 2);
  EXPECT_THAT(child.errors(), HasSubstr("knows nothing of 'shm push'; hint: lockstep bench --fit"));
}

struct Mistake {
  std::vector<std::string> words;
  std::string expected;
};

TEST(BenchCollectives, MistakesAreRefusedByValueBeforeARankStarts) {
  const std::vector<Mistake> mistakes = {
      {{"allreduce", "--engines", "smh"}, "--engines smh: there is no such engine"},
      {{"allreduce", "--engines", "threads"}, "--engines threads: it has no processes to measure"},
      {{"allreduce", "--engines", ","}, "--engines ',': names nothing; hint: like shm,gloo,mpi"},
      {{"allreduce", "--sizes", "64KiBB"}, "--sizes '64KiBB': not a number of bytes"},
      {{"allreduce", "--sizes", "3"}, "--sizes 3: less than one float32"},
      {{"allreduce", "--sizes", "1TiB"}, "--sizes 1TiB: the ranks hold 4 buffers of it"},
      {{"allreduce", "--algorithms", "rign"},
       "--algorithms 'rign': unknown for allreduce; hint: did you mean ring?"},
      {{"broadcast", "--algorithms", "native"}, "--algorithms native: broadcast has none"},
      {{"allreduce", "--algorithms", "native"}, "--algorithms native: shm has none of its own"},
      {{"allreduce", "--algorithms", "one-shot", "--sizes", "4KiB"},
       "takes at most 2048 bytes, not 4096; hint: use push"},
      {{"allreduce", "--engines", "gloo", "--algorithms", "push"},
       "--algorithms push: needs what gloo has not"},
      {{"pingpong", "--algorithms", "ring"}, "pingpong has none"},
      {{"pingpong", "--world", "1"}, "--world 1: pingpong takes two"},
      {{"allreduce", "--model", "/no/such/file"}, "--model /no/such/file: cannot be read"},
      {{"allreduce", "--json", "/no/such/folder/file"},
       "--json /no/such/folder/file: No such file or directory"},
      {{"--fit", "--sizes", "4,8"}, "--sizes 4,8: 2 sizes; hint: at least 5"},
      {{"--fit", "--world", "1"}, "--world: 1 is not between 2 and 64"},
      {{"--fit", "--save", "/no/such/folder/file"}, "--save /no/such/folder/file: No such file or directory"},
      {{"--fti"}, "unknown kind --fti; hint: did you mean --fit?"},
  };
  for (const auto& [words, expected] : mistakes) {
    std::vector<std::string> command = {LOCKSTEP_COMMAND, "bench"};
    command.insert(command.end(), words.begin(), words.end());
    Child child(command);
    EXPECT_EQ(child.wait(), 2) << expected;
    EXPECT_THAT(child.errors(), HasSubstr(expected));
    EXPECT_EQ(child.output(), "") << expected;
  }
}

}  // namespace
}  // namespace lockstep::test
