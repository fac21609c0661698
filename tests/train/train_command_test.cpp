// What `lockstep train` leaves, says and refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <fstream>

#include "train/training.h"

namespace lockstep::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(TrainCommand, PrintsAFallingLossBesideTheEntropyAndASample) {
  Training training;
  const std::string output = training.run(training.train("run", {"--steps", "60", "--lr", "0.01"}));
  EXPECT_THAT(output, AllOf(HasSubstr("Data parallel on 2 ranks"), HasSubstr("step 60/60  loss "),
                            HasSubstr("  H "), HasSubstr("tokens/s"), HasSubstr("perplexity"),
                            HasSubstr("a sample"), Not(HasSubstr("\r"))));
  EXPECT_THAT(output, Not(HasSubstr("WARNING")));
  const json summary = json::parse(read_file(training / "run/summary.json"));
  EXPECT_LT(summary.at("loss"), 3.0);
  EXPECT_LT(summary.at("validation_loss"), 3.0) << "even guesses at 27 characters give 3.3";
  EXPECT_GT(summary.at("validation_loss"), summary.at("entropy"));
  EXPECT_EQ(summary.at("step"), 60);
}

TEST(TrainCommand, LeavesARunFolder) {
  Training training;
  training.run(training.train("run", {"--checkpoint-every", "4", "--keep", "2", "--trace", "--tensorboard"}));
  const auto lines = training.metrics("run");
  ASSERT_EQ(lines.size(), 12U);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(json::parse(lines[i]).at("step"), i + 1);
  EXPECT_EQ(json::parse(read_file(training / "run/config.json")).at("vocab_size"), 27);
  EXPECT_EQ(json::parse(read_file(training / "run/run.json")).at("world_size"), 2);
  EXPECT_EQ(read_file(training / "run/checkpoints/LATEST"), "step_00000012\n");
  EXPECT_FALSE(std::filesystem::exists(training / "run/checkpoints/step_00000004"));
  EXPECT_TRUE(std::filesystem::exists(training / "run/checkpoints/step_00000008/manifest.json"));
  const json trace = json::parse(read_file(training / "run/trace.json"));
  EXPECT_GT(trace.at("traceEvents").size(), 50U);
  EXPECT_FALSE(std::filesystem::is_empty(training / "run/tensorboard"));
}

TEST(TrainCommand, LogsEachRanksOwnLossAndSamples) {
  Training training;
  training.run(training.train("run"));
  const std::string first = read_file(training / "run/logs/rank_0/train.log");
  const std::string second = read_file(training / "run/logs/rank_1/train.log");
  EXPECT_THAT(first, ContainsRegex("step 12 loss [0-9.]+ mean [0-9.]+ samples [0-9]+ "));
  EXPECT_NE(first, second);
  const auto means = [](const std::string& log) { return log.substr(log.find("mean"), 13); };
  EXPECT_EQ(means(first), means(second));
}

TEST(TrainCommand, TakesTheNextFreeFolderUnlessTold) {
  Training training;
  for (const char* run : {"runs/grammar-1", "runs/grammar-2"}) {
    const std::string output =
        training.run({"train", "--config", "small.json", "--steps", "1", "--nproc-per-node", "1"});
    EXPECT_THAT(output, HasSubstr(run));
  }
}

TEST(TrainCommand, TrainsOnATextFileByBytePairsAndOnAFolderByCharacters) {
  Training training;
  std::filesystem::create_directories(training / "texts/deep");
  const std::string verse = "Sing, goddess, the anger of Peleus' son Achilleus and its devastation.\n";
  for (const char* file : {"texts/a.txt", "texts/deep/b.txt"}) {
    std::ofstream stream(training / file);
    for (int i = 0; i < 40; ++i) stream << verse;
  }
  const auto few = [&](const std::string& run, const std::string& data, const std::string& tokenizer) {
    return training.run(training.train(run, {"--data", data, "--tokenizer", tokenizer, "--epochs", "1"}), 2) +
           training.errors();
  };
  EXPECT_THAT(few("both", "texts", "char"), HasSubstr("--steps 12 and --epochs 1"));
  training.run({"train", "--config", "small.json", "--data", "texts", "--tokenizer", "char", "--epochs", "1",
                "--batch", "8", "--run-dir", "letters"});
  EXPECT_EQ(json::parse(read_file(training / "letters/tokenizer.json")).at("kind"), "char");
  training.run(training.train("pairs", {"--data", "texts/a.txt"}));
  EXPECT_EQ(json::parse(read_file(training / "pairs/tokenizer.json")).at("kind"), "bpe");
  const auto tokens = json::parse(read_file(training / "pairs/config.json")).at("vocab_size").get<int>();
  EXPECT_GT(tokens, 256);
}

TEST(TrainCommand, NamesTheStepAtWhichTheLossIsLost) {
  Training training;
  training.run(training.train("run", {"--lr", "1000", "--clip", "0", "--steps", "200"}), 1);
  EXPECT_THAT(training.errors(), ContainsRegex("loss is (nan|inf) at step [0-9]+ of 200; hint: lower --lr"));
}

struct Mistake {
  std::vector<std::string> words;
  std::string said;
};

/// Each is refused by name and value, before anything is made.
void expect_refusals(Training& training, const std::vector<Mistake>& mistakes) {
  for (const auto& [words, said] : mistakes) {
    training.run(training.train("run", words), 2);
    EXPECT_THAT(training.errors(), HasSubstr(said));
    EXPECT_FALSE(std::filesystem::exists(training / "run")) << said;
  }
}

TEST(TrainMistakes, InFlagsAreRefused) {
  Training training;
  expect_refusals(
      training, {{{"--steps", "-1"}, "--steps"},
                 {{"--steps", "ten"}, "--steps: 'ten'"},
                 {{"--lr", "nan"}, "--lr"},
                 {{"--batch", "0"}, "--batch"},
                 {{"--seed", "-1"}, "--seed"},
                 {{"--stepz"}, "--stepz"},
                 {{"--batch", "9"}, "--batch 9 does not divide by 2"},
                 {{"--parallel", "tensor"}, "--parallel: 'tensor'"},
                 {{"--parallel", "none"}, "--parallel none on 2 ranks"},
                 {{"--parallel", "pipeline", "--nproc-per-node", "5"}, "5 stages, the model 4 layers"},
                 {{"--schedule", "zb-h1"}, "--schedule: 'zb-h1'"},
                 {{"--tokenizer", "bpe"}, "its entropy is known by character"},
                 {{"--epochs", "2"}, "both say how long"},
                 {{"--engine", "nccl"}, "nccl"},
                 {{"--engine", ""}, "--engine: the value is empty; hint: give one, or leave the flag out"}});
}

TEST(TrainMistakes, InFilesAreRefused) {
  Training training;
  std::ofstream(training / "heads.json") << R"({"hidden_size": 64, "num_attention_heads": 3})";
  std::ofstream(training / "zero.json") << R"({"num_hidden_layers": 0})";
  std::ofstream(training / "key.json") << R"({"hiden_size": 64})";
  std::ofstream(training / "type.json") << R"({"hidden_size": "64"})";
  std::ofstream(training / "empty.txt");
  std::ofstream(training / "short.txt") << "too short\n";
  std::ofstream(training / "bytes.txt") << "good \xff bad\n";
  expect_refusals(training, {{{"--config", "heads.json"}, "num_attention_heads is 3"},
                             {{"--config", "zero.json"}, "num_hidden_layers is 0"},
                             {{"--config", "key.json"}, "hiden_size"},
                             {{"--config", "type.json"}, "hidden_size is \"64\", expected a whole number"},
                             {{"--config", "gone.json"}, "gone.json: cannot be read"},
                             {{"--data", "gone.txt"}, "--data gone.txt: no such file"},
                             {{"--data", "empty.txt"}, "empty"},
                             {{"--data", "bytes.txt"}, "bytes.txt"},
                             {{"--data", "short.txt"}, "at least 34 are needed"},
                             {{"--data", "mnist"}, "--config small.json with --data mnist"}});
}

TEST(TrainCommand, RefusesAFolderThatHoldsARunOrCannotBeMade) {
  Training training;
  training.run(training.train("run"));
  training.run(training.train("run"), 2);
  EXPECT_THAT(training.errors(), HasSubstr("--run-dir run holds a run already; hint: --resume"));
  training.run(training.train("small.json/run"), 2);
  EXPECT_THAT(training.errors(), HasSubstr("--run-dir small.json/run: cannot be made"));
  training.run({"train", "--resume"}, 2);
  EXPECT_THAT(training.errors(), HasSubstr("--resume of which run?"));
  training.run({"train", "--resume", "--run-dir", "gone"}, 2);
  EXPECT_THAT(training.errors(), HasSubstr("gone/run.json is missing"));
}

/// In a shell, so that its words may close descriptors; the exit code.
Finished in_shell(const Training& training, const Training::Words& words, const std::string& redirections) {
  std::string line = "'" LOCKSTEP_COMMAND "'";
  for (const auto& word : words) line += " '" + word + "'";
  return run_to_end(
      {"bash", "-c", line + " " + redirections},
      {.environment = {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}}, .folder = training / ""});
}

TEST(TrainCommand, OutputThatIsLostIsAFailureOfAWholeRun) {
  Training training;
  const auto full = in_shell(training, training.train("run", {"--max-restarts", "3"}), "> /dev/full");
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_EQ(
      full.errors,
      "lockstep: standard output: not all of it could be written; hint: the run is whole, its folder has all "
      "numbers\n");
  EXPECT_EQ(json::parse(read_file(training / "run/summary.json")).at("step"), 12);
  EXPECT_THAT(read_file(training / "run/logs/rank_0/stderr.log"), Not(HasSubstr("restart")));
  EXPECT_EQ(in_shell(training, training.train("closed"), "<&- >&- 2>&-").exit_code, 0)
      << "nobody asked for it";
  for (const std::string verb : {"eval", "generate"}) {
    for (const std::string lost : {"> /dev/full 2> /dev/full", "<&- >&- 2>&-"})
      EXPECT_EQ(in_shell(training, {verb, "run"}, lost).exit_code, 1) << verb << lost;
    EXPECT_EQ(in_shell(training, {verb, "gone"}, "2> /dev/full").exit_code, 2) << verb;
  }
}

TEST(TrainCommand, GoesOnAfterTheReaderOfItsOutputHasLeft) {
  Training training;
  const auto left = in_shell(training, training.train("run", {"--steps", "40"}),
                             "| head -c 1 >/dev/null; exit ${PIPESTATUS[0]}");
  EXPECT_EQ(left.exit_code, 0) << left.errors;
  EXPECT_EQ(json::parse(read_file(training / "run/summary.json")).at("step"), 40);
}

TEST(TrainMistakes, InARunsFilesAreNamedInPlainWords) {
  Training training;
  training.run(training.train("run"));
  const std::string last = "checkpoints/step_00000012/";
  const auto damaged = [&](const std::string& file, const std::string& text) {
    std::filesystem::remove_all(training / "bad");
    std::filesystem::copy(training / "run", training / "bad", std::filesystem::copy_options::recursive);
    std::ofstream(training / "bad" / file) << text;
  };
  for (const std::string text : {"nonse{", "[1]"}) {
    for (const std::string file : {"run.json", "config.json", "tokenizer.json"}) {
      damaged(file, text);
      const auto refused = in_shell(training, {"train", "--resume", "--run-dir", "bad", "--steps", "13"}, "");
      EXPECT_NE(refused.exit_code, 0) << file << text;
      EXPECT_THAT(refused.errors, AllOf(HasSubstr("bad/" + file), Not(HasSubstr("json.exception")))) << text;
    }
    for (const std::string file : {"state.json", "tokenizer.json", "config.json", "manifest.json"}) {
      damaged(last + file, text);
      const auto refused = in_shell(training, {"eval", "bad/" + last}, "");
      EXPECT_NE(refused.exit_code, 0) << file << text;
      EXPECT_THAT(refused.errors, AllOf(HasSubstr(file), Not(HasSubstr("json.exception")))) << text;
    }
  }
}

TEST(TrainMistakes, AreAPipeOrAFolderInThePlaceOfARunsFile) {
  Training training;
  training.run(training.train("run"));
  for (const std::string file : {"run.json", "config.json", "tokenizer.json", ".lock"}) {
    std::filesystem::rename(training / "run" / file, training / "kept");
    for (const bool is_pipe : {true, false}) {
      if (is_pipe && file == ".lock") continue;  // a pipe can be locked as well
      ASSERT_EQ((is_pipe ? mkfifo : mkdir)((training / "run" / file).c_str(), 0700), 0);
      training.run({"train", "--resume", "--run-dir", "run", "--steps", "13"}, 2);
      EXPECT_THAT(training.errors(), AllOf(HasSubstr("run/" + file), Not(HasSubstr("checkpoint"))));
      std::filesystem::remove(training / "run" / file);
    }
    std::filesystem::rename(training / "kept", training / "run" / file);
  }
}

/// What root may do beyond others is taken from it; others have it not.
void drop_file_rights() {
  for (const int capability : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH})
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
}

TEST(TrainCommand, SaysWhatMayNotBeWrittenOrRead) {
  Training training;
  training.run(training.train("run"));
  using std::filesystem::perms;
  const auto expect = [&](const std::string& path, perms rights, const Training::Words& words) {
    std::filesystem::permissions(training / path, rights);
    Training::Words command = words;
    command.insert(command.begin(), LOCKSTEP_COMMAND);
    const auto refused = run_to_end(command, {.folder = training / "", .before = drop_file_rights});
    std::filesystem::permissions(training / path, perms::owner_all);
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.errors, AllOf(HasSubstr("Permission denied; hint: "), HasSubstr("run/"),
                                      Not(HasSubstr("checkpoint: cannot"))));
  };
  const Training::Words resume = {"train", "--resume", "--run-dir", "run", "--steps", "13"};
  expect("run", perms::owner_read | perms::owner_exec, resume);
  expect("run/run.json", perms::none, resume);
  expect("run/checkpoints", perms::none, {"eval", "run"});
}

TEST(TrainCommand, SaysThatItReadsALargeFile) {
  Training training;
  std::ofstream(training / "large.txt") << "\xff";  // refused as soon as it has been read
  std::filesystem::resize_file(training / "large.txt", 64 << 20);
  training.run(training.train("run", {"--data", "large.txt"}), 2);
  EXPECT_THAT(training.errors(), testing::StartsWith("lockstep train: reading large.txt (64.00 MiB): "));
  std::filesystem::create_directory(training / "texts");
  std::filesystem::rename(training / "large.txt", training / "texts/a.txt");
  training.run(training.train("run", {"--data", "texts"}), 2);
  EXPECT_THAT(training.errors(), testing::StartsWith("lockstep train: reading texts (64.00 MiB): "));
}

TEST(Generate, GivesTheSameTextForTheSameSeedAndStreamsFromRunOrCheckpoint) {
  Training training;
  training.run(training.train("run"));
  const auto text = [&](const std::string& from, const std::string& seed) {
    return training.run({"generate", from, "--prompt", "the ", "--length", "30", "--seed", seed});
  };
  const std::string one = text("run", "1");
  EXPECT_THAT(one, testing::StartsWith("the "));
  EXPECT_EQ(one.size(), 4U + 30 + 1);
  EXPECT_EQ(text("run/checkpoints/step_00000012", "1"), one);
  EXPECT_NE(text("run", "2"), one);
  const auto likeliest = [&](const std::string& seed) {
    return training.run({"generate", "run", "--length", "20", "--temperature", "0", "--seed", seed});
  };
  EXPECT_EQ(likeliest("1"), likeliest("2"));
  const auto of_one = training.run({"generate", "run", "--length", "20", "--top-k", "1"});
  EXPECT_EQ(of_one, likeliest("1"));
}

TEST(Generate, RefusesWhatItCannotWriteOn) {
  Training training;
  training.run(training.train("run"));
  training.run({"generate", "run", "--prompt", "Zebra"}, 2);
  EXPECT_THAT(training.errors(), HasSubstr("U+005A 'Z'"));
  training.run({"generate", "nowhere"}, 2);
  EXPECT_THAT(training.errors(), HasSubstr("nowhere"));
  training.run({"eval", "small.json"}, 2);
  EXPECT_THAT(training.errors(), HasSubstr("small.json"));
}

TEST(Eval, TellsWhatTrainingToldAtItsEnd) {
  Training training;
  training.run(training.train("run"));
  const json summary = json::parse(read_file(training / "run/summary.json"));
  const json evaluated = json::parse(training.run({"eval", "run", "--json"}));
  EXPECT_NEAR(evaluated.at("loss"), summary.at("validation_loss"), 1e-5);
  EXPECT_NEAR(evaluated.at("accuracy"), summary.at("accuracy"), 1e-9);
  EXPECT_THAT(training.run({"eval", "run"}), HasSubstr("perplexity"));
}

}  // namespace
}  // namespace lockstep::test
