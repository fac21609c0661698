// What a run's folder promises: one writer, commands that are refused change nothing, and what it says is
// true.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>

#include "train/checkpoint/files.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/safetensors.h"
#include "train/training.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

/// All files of a folder with their bytes.
std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto status = entry.symlink_status();
    all[entry.path().lexically_relative(folder)] =
        fmt::format("{} {:o} ", static_cast<int>(status.type()), static_cast<int>(status.permissions())) +
        (fs::is_regular_file(status) ? read_file(entry.path()) : "");
  }
  return all;
}

class RunFolder : public testing::Test {
 protected:
  using Words = Training::Words;

  Words resume(const Words& more = {}, const std::string& run = "run") const {
    Words words = {"train", "--resume", "--run-dir", run};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// Runs to the end in this environment; the exit code.
  int run_in(Words words, const launch::Environment& environment) {
    words.insert(words.begin(), LOCKSTEP_COMMAND);
    const Finished ended = run_to_end(words, {.environment = environment, .folder = training_ / ""});
    output_ = ended.output;
    errors_ = ended.errors;
    return ended.exit_code;
  }
  /// Refused with exit code 2, and nothing in the folder is as much as touched.
  void expect_refused(const Words& words, const std::string& said, const launch::Environment& more = {}) {
    SCOPED_TRACE(said);
    const auto before = contents(training_ / "run");
    launch::Environment environment = {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}};
    for (const auto& [name, value] : more) environment[name] = value;
    EXPECT_EQ(run_in(words, environment), 2) << output_ << errors_;
    EXPECT_THAT(errors_, HasSubstr(said));
    const auto after = contents(training_ / "run");
    for (const auto& [name, bytes] : before) {
      EXPECT_TRUE(after.contains(name) && after.at(name) == bytes) << name << " was changed";
    }
    for (const auto& [name, bytes] : after) EXPECT_TRUE(before.contains(name)) << name << " is new";
  }
  /// Writes other values into a JSON file; "." separates keys.
  void edit(const fs::path& file, const std::string& pointer, const json& value) {
    auto document = nlohmann::ordered_json::parse(read_file(file));
    document[nlohmann::ordered_json::json_pointer(pointer)] = value;
    write_file(file, document.dump(2) + "\n");
  }
  /// Makes the manifest of a checkpoint that was altered fit again.
  void seal_again(const fs::path& checkpoint, int64_t step) {
    train::Manifest manifest = train::parse_manifest(read_file(checkpoint / "manifest.json"), "manifest");
    manifest.step = step;
    for (auto& seal : manifest.files) seal = train::seal_of(checkpoint / seal.file);
    write_file(checkpoint / "manifest.json", train::manifest_json(manifest));
  }
  json state(const std::string& run, int step) const {
    return json::parse(
        read_file(training_ / run / "checkpoints" / fmt::format("step_{:08}", step) / "state.json"));
  }
  /// Waits until a run has done so many steps.
  void await_steps(const Child& child, const std::string& run, size_t steps) {
    ASSERT_TRUE(eventually([&] { return training_.has_done(run, steps); }))
        << child.output() << child.errors();
  }

  Training training_;
  std::string output_, errors_;
};

TEST_F(RunFolder, IsLeftAsItIsByEveryCommandThatIsRefused) {
  training_.run(training_.train("run", {"--checkpoint-every", "4"}));
  std::ofstream(training_ / "other.json") << R"({"hidden_size": 32})";
  expect_refused(training_.train("run"), "holds a run already");
  expect_refused(resume({"--seed", "7"}), "--seed 7: the run that goes on has 0");
  expect_refused(resume({"--steps", "99", "--batch", "9"}), "--batch 9");
  expect_refused(resume({"--steps", "11"}), "the checkpoint is of step 12, the run has 11");
  expect_refused(resume({"--steps", "99", "--config", "other.json"}), "other.json differs");
  expect_refused(resume({"--steps", "99", "--nproc-per-node", "1"}), "world_size 1, was 2");
  expect_refused(resume({"--steps", "99", "--nproc-per-node", "4"}), "world_size 4, was 2");
  expect_refused(resume({"--steps", "99", "--parallel", "pipeline"}), "parallel pipeline, was ddp");
  expect_refused(resume({"--steps", "99", "--engine", "gloo"}), "engine gloo, was shm");
  expect_refused(resume({"--steps", "99", "--engine", "nccl"}), "nccl: there is no such engine");
  expect_refused(resume({"--steps", "99"}), "engine gloo, was shm", {{"LOCKSTEP_ENGINE", "gloo"}});
  expect_refused(resume({"--steps", "99"}), "threads 2, was 1", {{"OMP_NUM_THREADS", "2"}});
  training_.run(resume({"--steps", "14"}));
  EXPECT_EQ(training_.metrics("run").size(), 14U);
}

TEST_F(RunFolder, ThatIsBeingWrittenIsLeftAloneByOthers) {
  const auto child =
      training_.start(training_.train("run", {"--steps", "1000000", "--checkpoint-every", "5"}));
  await_steps(*child, "run", 6);
  // As if the run were writing a checkpoint at this moment.
  fs::create_directory(training_ / "run/checkpoints/.step_00999999.tmp");
  const std::string settings = read_file(training_ / "run/run.json");
  for (const Words& words : {resume(), resume({"--steps", "999"}), resume({"--nproc-per-node", "1"}),
                             resume({"--inexact", "--parallel", "none", "--nproc-per-node", "1"})}) {
    training_.run(words, 2);
    EXPECT_THAT(training_.errors(), HasSubstr("run: another run is writing it at this moment; hint:"));
  }
  training_.run(training_.train("run", {"--seed", "7"}), 2);
  EXPECT_TRUE(fs::exists(training_ / "run/checkpoints/.step_00999999.tmp"));
  EXPECT_EQ(read_file(training_ / "run/run.json"), settings);
  const auto done = training_.metrics("run").size();
  await_steps(*child, "run", done + 6);
  child->send(SIGTERM);
  EXPECT_EQ(child->wait(), 75) << child->output() << child->errors();
}

TEST_F(RunFolder, HasOneWriterWhoTrainsWithItsOwnSettings) {
  for (const std::string run : {"one", "two", "three"}) {
    std::vector<std::unique_ptr<Child>> children;
    for (const char* seed : {"5", "6"}) {
      children.push_back(training_.start(training_.train(run, {"--seed", seed, "--steps", seed})));
    }
    const int codes[] = {children[0]->wait(), children[1]->wait()};
    ASSERT_THAT(codes, testing::UnorderedElementsAre(0, 2))
        << children[0]->errors() << children[1]->errors() << children[0]->output();
    const size_t winner = codes[0] == 0 ? 0 : 1;
    EXPECT_THAT(children[1 - winner]->errors(),
                testing::AnyOf(HasSubstr("another run is writing it"), HasSubstr("holds a run already")));
    const int number = winner == 0 ? 5 : 6;
    EXPECT_EQ(json::parse(read_file(training_ / run / "run.json")).at("seed"), number);
    EXPECT_EQ(state(run, number).at("settings").at("seed"), number);
    EXPECT_EQ(training_.metrics(run).size(), static_cast<size_t>(number));
  }
}

TEST_F(RunFolder, IsFreeAsSoonAsItsProcessesAreKilled) {
  training_.run(training_.train("whole", {"--steps", "60", "--checkpoint-every", "5"}));
  const auto child = training_.start(training_.train("run", {"--steps", "60", "--checkpoint-every", "5"}));
  await_steps(*child, "run", 7);
  child->send(SIGKILL);
  child->wait();
  training_.run(resume());  // at once
  EXPECT_EQ(training_.metrics("run"), training_.metrics("whole"));
  EXPECT_EQ(training_.weights("run", 60), training_.weights("whole", 60));
}

TEST_F(RunFolder, TakesUnnamedRunsOneEach) {
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(
        training_.start({"train", "--config", "small.json", "--steps", "2", "--nproc-per-node", "1"}));
  }
  for (const auto& child : children) EXPECT_EQ(child->wait(), 0) << child->errors();
  for (int i = 1; i <= 3; ++i)
    EXPECT_TRUE(fs::exists(training_ / fmt::format("runs/grammar-{}/run.json", i)));
  training_.run({"train", "--data", "none.txt"}, 2);
  EXPECT_FALSE(fs::exists(training_ / "runs/none-1"));
}

// Whatever decides bits is reused: the engine, also by variable, the threads, the kernels.
TEST_F(RunFolder, ResumesByTheCommandThatItPrints) {
  const launch::Environment first = {{"LOCKSTEP_ENGINE", "gloo"},
                                     {"OMP_NUM_THREADS", "3"},
                                     {"OPENBLAS_NUM_THREADS", "3"},
                                     {"OPENBLAS_CORETYPE", "Sandybridge"}};
  const launch::Environment later = {{"LOCKSTEP_ENGINE", ""},
                                     {"OMP_NUM_THREADS", ""},
                                     {"OPENBLAS_NUM_THREADS", ""},
                                     {"OPENBLAS_CORETYPE", ""}};
  const auto train = [&](const std::string& run) {
    Words words = training_.train(run, {"--steps", "40", "--checkpoint-every", "5"});
    words.insert(words.begin(), LOCKSTEP_COMMAND);
    return std::make_unique<Child>(words, Child::Options{.environment = first, .folder = training_ / ""});
  };
  ASSERT_EQ(train("whole")->wait(), 0);
  const auto child = train("it's a run");
  await_steps(*child, "it's a run", 7);
  child->send(SIGTERM);
  ASSERT_EQ(child->wait(), 75) << child->output() << child->errors();
  const std::string said = child->output();
  const auto begin = said.find("lockstep train --resume");
  ASSERT_NE(begin, std::string::npos) << said;
  const std::string command = said.substr(begin, said.find('\n', begin) - begin);
  Child again(
      {"bash", "-c", "PATH='" + fs::path(LOCKSTEP_COMMAND).parent_path().string() + "':$PATH; " + command},
      {.environment = later, .folder = training_ / ""});
  ASSERT_EQ(again.wait(), 0) << command << again.output() << again.errors();
  EXPECT_EQ(training_.metrics("it's a run"), training_.metrics("whole"));
  EXPECT_EQ(training_.weights("it's a run", 40), training_.weights("whole", 40));
  EXPECT_EQ(state("it's a run", 40).at("conditions"), state("whole", 40).at("conditions"));
}

TEST_F(RunFolder, RecordsTheKernelsThatRanAndRefusesOthersWithoutRestarting) {
  ASSERT_EQ(run_in(training_.train("run"), {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_CORETYPE", ""}}), 0)
      << errors_;
  const json conditions = state("run", 12).at("conditions");
  const std::string core = conditions.at("openblas_coretype");
  EXPECT_NE(core, "") << "no variable was set, and yet some kernels ran";
  EXPECT_EQ(conditions.at("openblas_threads"), "1");
  const std::string other = core == "NEHALEM" ? "PRESCOTT" : "NEHALEM";
  EXPECT_EQ(run_in(resume({"--steps", "14", "--max-restarts", "1000"}),
                   {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_CORETYPE", other}}),
            2);
  EXPECT_THAT(errors_, AllOf(HasSubstr(fmt::format("openblas_coretype {}, was {}", other, core)),
                             HasSubstr("not restarted: exit code 2"), Not(HasSubstr("restart 1 of"))));
  EXPECT_EQ(run_in(resume({"--steps", "14"}), {{"OPENBLAS_CORETYPE", ""}}), 0) << errors_;
}

TEST_F(RunFolder, ThatWasEditedOrMixedWithAnotherIsRefusedByName) {
  training_.run(training_.train("run", {"--seed", "6"}));
  training_.run(training_.train("other", {"--seed", "5"}));
  const auto expect_edit_refused = [&](const std::string& file, const std::string& pointer, const json& value,
                                       const std::string& said) {
    const std::string before = read_file(training_ / "run" / file);
    edit(training_ / "run" / file, pointer, value);
    expect_refused(resume({"--steps", "14"}), said);
    write_file(training_ / "run" / file, before);
  };
  expect_edit_refused("run.json", "/seed", 5, "seed 5, was 6");
  expect_edit_refused("run.json", "/batch", 16, "batch 16, was 8");
  expect_edit_refused("run.json", "/lr", 0.5, "lr 0.5, was 0.003");
  expect_edit_refused("run.json", "/warmup", 3, "warmup 3, was 2");
  expect_edit_refused("config.json", "/hidden_dropout_prob", 0.5,
                      "hidden_dropout_prob of config.json 0.5, was 0.1");
  expect_edit_refused("tokenizer.json", "/tokens/0", "\t", "tokens of tokenizer.json");
  fs::remove_all(training_ / "run/checkpoints/step_00000012");
  fs::copy(training_ / "other/checkpoints/step_00000012", training_ / "run/checkpoints/step_00000012");
  expect_refused(resume({"--steps", "14"}), "seed 6, was 5");
}

TEST_F(RunFolder, WithAForgedStepIsRefusedWhateverItsHashes) {
  training_.run(training_.train("run"));
  const fs::path folder = training_ / "run/checkpoints/step_00000012";
  const auto forge = [&](const fs::path& checkpoint, int64_t manifest_step, int64_t state_step) {
    edit(checkpoint / "state.json", "/step", state_step);
    edit(checkpoint / "state.json", "/samples", state_step * 8);
    seal_again(checkpoint, manifest_step);
  };
  for (const int64_t step : {int64_t{4'000'000'000}, int64_t{-40}, int64_t{11}}) {
    forge(folder, 12, step);
    const std::string said = fmt::format("state.json is of step {}", step);
    EXPECT_THAT(training_.run({"checkpoint", "verify", "run"}, 1), HasSubstr(said));
    training_.run({"eval", "run"}, 1);
    EXPECT_THAT(training_.errors(), HasSubstr(said));
    expect_refused(resume(), said);
  }
  const fs::path far = training_ / "run/checkpoints/step_4000000000";
  fs::rename(folder, far);
  forge(far, 4'000'000'000, 4'000'000'000);
  EXPECT_THAT(training_.run({"checkpoint", "verify", "run"}, 1), HasSubstr("its run has 12"));
  training_.run({"eval", "run/checkpoints/step_4000000000"}, 1);
  EXPECT_THAT(training_.errors(), HasSubstr("its run has 12"));
  expect_refused(resume(), "its run has 12");
}

TEST_F(RunFolder, WithAForgedStepInTheOptimizerIsRefused) {
  training_.run(training_.train("run"));
  const fs::path folder = training_ / "run/checkpoints/step_00000012";
  std::string name, bytes;
  {
    train::SafetensorsFile file(folder / "optimizer-00001-of-00001.safetensors");
    bytes = read_file(folder / "optimizer-00001-of-00001.safetensors");
    const auto& last = *std::ranges::find_if(
        file.header().tensors, [](const auto& tensor) { return tensor.name.ends_with(".step"); });
    name = last.name;
    const int64_t step = -40;
    std::memcpy(&bytes[file.header().data_begin + last.begin], &step, sizeof step);
  }
  write_file(folder / "optimizer-00001-of-00001.safetensors", bytes);
  seal_again(folder, 12);
  const std::string said = "\"" + name + "\" is -40, the checkpoint is of step 12";
  EXPECT_THAT(training_.run({"checkpoint", "verify", "run"}, 1), HasSubstr(said));
  expect_refused(resume(), said);
}

TEST_F(RunFolder, WhoseStepsAreAllDoneKeepsItsResult) {
  training_.run(training_.train("run"));
  const json summary = json::parse(read_file(training_ / "run/summary.json"));
  training_.run(resume());
  const json again = json::parse(read_file(training_ / "run/summary.json"));
  for (const char* key : {"step", "loss", "validation_loss"})
    EXPECT_EQ(again.at(key), summary.at(key)) << key;
}

TEST_F(RunFolder, NamesStepsThatAreNotTheCheckpoints) {
  training_.run(training_.train("run"));
  edit(training_ / "run/run.json", "/steps", 14);
  EXPECT_THAT(training_.run(resume()), HasSubstr("note: steps 14, was 12 when step_00000012 was saved"));
}

TEST_F(RunFolder, WhoseNewestCheckpointIsDamagedSaysSoToEveryReader) {
  training_.run(training_.train("run", {"--checkpoint-every", "6"}));
  const auto file = training_ / "run/checkpoints/step_00000012/model-00001-of-00001.safetensors";
  fs::resize_file(file, fs::file_size(file) - 1);
  const auto why = AllOf(HasSubstr("skipped"), HasSubstr("step_00000012"), HasSubstr("shorter than"));
  for (const Words& words :
       {Words{"generate", "run", "--length", "3"}, Words{"eval", "run"}, Words{"checkpoint", "show", "run"},
        Words{"checkpoint", "export", "run", "--out", "weights.pt"}}) {
    training_.run(words);
    EXPECT_THAT(training_.errors(), why) << words[0];
  }
}

TEST_F(RunFolder, WithoutTheCheckpointsThatItSavedIsNotStartedOverUnasked) {
  training_.run(training_.train("run", {"--checkpoint-every", "6"}));
  const fs::path checkpoints = training_ / "run/checkpoints";
  fs::copy(checkpoints, training_ / "kept", fs::copy_options::recursive);
  for (const char* step : {"step_00000006", "step_00000012"})
    write_file(checkpoints / step / "state.json", "{}");
  expect_refused(resume(), "step_00000006: state.json has 2 bytes");
  fs::remove_all(checkpoints / "step_00000006");
  fs::remove_all(checkpoints / "step_00000012");
  expect_refused(resume(), "step_00000012: is missing, LATEST names it");
  fs::remove(checkpoints / "LATEST");
  expect_refused(resume(), "summary.json says that it had saved one; hint: to start over, begin a new run");
  fs::remove(training_ / "run/summary.json");
  expect_refused(resume(), "metrics.jsonl has step 12, past the checkpoint of step 6");
  fs::remove_all(checkpoints);
  expect_refused(resume(), "its folder checkpoints is missing");
  fs::rename(training_ / "kept", checkpoints);
  training_.run(resume({"--steps", "14"}));
}

TEST_F(RunFolder, KilledBeforeItsFirstCheckpointStartsAgainFromStepOneAndSaysSo) {
  const Words flags = {"--steps", "60", "--checkpoint-every", "50", "--seed", "3"};
  training_.run(training_.train("whole", flags));
  const auto killed = training_.start(training_.train("run", flags));
  await_steps(*killed, "run", 5);
  killed->send(SIGKILL);
  killed->wait();
  ASSERT_FALSE(fs::exists(training_ / "run/checkpoints/LATEST")) << "it was not killed in time";
  // Step 5 is past where the new flag puts the first checkpoint; the killed run had none there.
  EXPECT_THAT(training_.run(resume({"--checkpoint-every", "2"})),
              HasSubstr("note: no checkpoint was saved yet: starting from step 1"));
  EXPECT_EQ(training_.metrics("run"), training_.metrics("whole"));
  EXPECT_EQ(training_.weights("run", 60), training_.weights("whole", 60));
}

}  // namespace
}  // namespace lockstep::test
