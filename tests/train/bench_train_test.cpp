// `lockstep bench train` as a user meets it: rows and settings, whatever the times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/bench_train_request.h"
#include "lockstep/error.h"
#include "support/bench.h"
#include "support/child.h"
#include "support/temporary_folder.h"

namespace lockstep::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A model that trains in a millisecond, as a file.
class BenchTrain : public testing::Test {
 protected:
  static constexpr const char* kTiny =
      R"({"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 16, "max_position_embeddings": 12})";

  std::string config(const std::string& text = kTiny) {
    const auto file = folder_.path() / "config.json";
    std::ofstream(file) << text;
    return file.string();
  }
  /// With a tiny model and batch.
  std::vector<std::string> tiny(std::vector<std::string> words) {
    words.insert(words.begin(), {"--config", config(), "--batch", "4"});
    return bench_command("train", words);
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(BenchTrain, TheDocumentHasTheKeysThatOtherProgramsRead) {
  Child child(tiny({"--steps", "6", "--checkpoint-every", "3", "--rounds", "2", "--json"}));
  ASSERT_EQ(child.wait(), 0) << child.errors();
  const auto document = json::parse(child.output());
  ASSERT_THAT(names_of(document["rows"], "system"), ElementsAre("lockstep", "lockstep-saving"));
  for (const auto& row : document["rows"]) {
    for (const char* key : {"tokens_per_s", "step_ms"}) {
      EXPECT_GT(row[key]["low"], 0) << key;
      EXPECT_LE(row[key]["low"], row[key]["median"]) << key;
      EXPECT_LE(row[key]["median"], row[key]["high"]) << key;
    }
    EXPECT_NEAR(row["first_loss"].get<double>(), 3.296, 0.1) << "the first guesses are nearly even: ln 27";
    EXPECT_LT(row["last_loss"], row["first_loss"]) << "nothing was trained";
  }
  EXPECT_THAT(document["ratios"], IsEmpty());
  const json& checkpoints = document["checkpoints"];
  EXPECT_EQ(checkpoints["every"], 3);
  for (const char* key : {"cost_percent", "save_percent"}) EXPECT_TRUE(checkpoints[key].contains("median"));
  EXPECT_GT(checkpoints["save_ms"]["low"], 0) << "a round of those that save had no checkpoint";
  const json& settings = document["settings"];
  EXPECT_EQ(settings["world"], 2);
  EXPECT_EQ(settings["batch"], 4);
  EXPECT_EQ(settings["engine"], "shm");
  EXPECT_EQ(settings["rounds"], 2);
  EXPECT_EQ(settings["config"]["vocab_size"], 27);
  EXPECT_EQ(settings["config"]["hidden_size"], 8);
}

TEST_F(BenchTrain, TokensASecondAreThoseOfTheBatchInTheTimeOfAStep) {
  Child child(tiny({"--steps", "4", "--checkpoint-every", "0", "--rounds", "1", "--json"}));
  ASSERT_EQ(child.wait(), 0) << child.errors();
  const auto document = json::parse(child.output());
  ASSERT_EQ(document["rows"].size(), 1U);
  const json& row = document["rows"][0];
  EXPECT_NEAR(row["tokens_per_s"]["median"].get<double>() * row["step_ms"]["median"].get<double>(),
              1e3 * 4 * 12, 1e-3);
  EXPECT_TRUE(document["checkpoints"].is_null());
}

TEST_F(BenchTrain, TheTextSaysWhatWasMeasuredAndLeavesNothing) {
  Child child(tiny({"--steps", "2", "--checkpoint-every", "2", "--rounds", "2", "--world", "1"}));
  ASSERT_EQ(child.wait(), 0) << child.errors();
  for (const char* text :
       {"(1 layer, 8 wide, 27 tokens), data parallel on 1 rank over", "batches of 4 sequences of 12 tokens",
        "2 steps a round; 2 rounds", "no peer: nothing that losses could be compared with", "tokens a second",
        "lockstep-saving", "a checkpoint every 2 steps costs"})
    EXPECT_THAT(child.output(), HasSubstr(text));
  EXPECT_THAT(child.output(), Not(HasSubstr("pytorch-ddp")));
  EXPECT_TRUE(child.leaves_nothing());
}

TEST_F(BenchTrain, MistakesAreRefusedByValueBeforeARankStarts) {
  struct Mistake {
    std::vector<std::string> words;
    std::string expected;
  };
  const std::vector<Mistake> mistakes = {
      {{"--batch", "63"}, "--batch 63 does not divide by 2"},
      {{"--batch", "0"}, "--batch: 0 is not between 1 and 20000"},
      {{"--world", "65"}, "--world: 65 is not between 1 and 64"},
      {{"--steps", "20"}, "--steps 20: not a multiple of --checkpoint-every, 50; hint: --steps 50"},
      {{"--peers", "deepspeed"}, "'deepspeed' is none of pytorch, none"},
      {{"--config", "/no/such/file"}, "/no/such/file: cannot be read"},
      {{"--config", config(R"({"hidden_sizes": 8})")}, "hidden_sizes"},
      {{"--json", "/no/such/folder/file"}, "--json /no/such/folder/file: No such file or directory"},
  };
  for (const auto& [words, expected] : mistakes) {
    Child child(bench_command("train", words));
    EXPECT_EQ(child.wait(), 2) << expected;
    EXPECT_THAT(child.errors(), HasSubstr(expected));
    EXPECT_EQ(child.output(), "") << expected;
  }
}

TEST_F(BenchTrain, DropoutIsRefusedBesideAPeerAlone) {
  const TemporaryFolder folder;
  const std::string file = config(R"({"attention_probs_dropout_prob": 0.5})");
  EXPECT_NO_THROW(cli::prepare_train_bench({.config_file = file}, folder.path() / "alone"));
  try {
    cli::prepare_train_bench({.config_file = file, .with_pytorch = true}, folder.path() / "beside");
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("attention_probs_dropout_prob is 0.5"));
  }
}

TEST_F(BenchTrain, AModelThatMemoryDoesNotHoldIsRefused) {
  for (const char* text : {R"({"hidden_size": 65536, "num_hidden_layers": 1000})",
                           R"({"max_position_embeddings": 65536, "num_hidden_layers": 1000})"}) {
    Child child(bench_command("train", {"--config", config(text), "--batch", "20000"}));
    EXPECT_EQ(child.wait(), 2);
    EXPECT_THAT(child.errors(), HasSubstr("need about"));
  }
}

TEST_F(BenchTrain, CtrlCEndsItWithNothingLeft) {
  const Ended ended = stop_at_work(tiny({"--rounds", "1000"}), SIGINT);
  EXPECT_EQ(ended.exit_code, 130) << ended.errors;
  EXPECT_TRUE(ended.left_nothing);
}

}  // namespace
}  // namespace lockstep::test
