// `lockstep checkpoint show`, `verify` and `export`, as a person runs them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/child.h"
#include "support/temporary_folder.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/samples.h"
#include "train/checkpoint/store.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// What the command printed.
/// A run whose checkpoints of steps 100 and 200 have two weights in two files.
class CheckpointCommand : public testing::Test {
 protected:
  CheckpointCommand() {
    for (const int64_t step : {100, 200}) save(step);
  }

  void save(int64_t step) {
    const CheckpointStore store(run_ / "checkpoints");
    const fs::path folder = store.begin(step);
    const std::vector<float> values = {1.5, static_cast<float>(step), -2};
    const auto bytes = std::as_bytes(std::span(values));
    const std::string one = "model-00001-of-00002.safetensors";
    const std::string two = "model-00002-of-00002.safetensors";
    std::vector<Seal> seals = {
        write_safetensors(folder, one,
                          {{.name = "embedding", .type = TensorType::kF32, .shape = {3, 1}, .bytes = bytes}}),
        write_safetensors(folder, two,
                          {{.name = "bias", .type = TensorType::kF32, .shape = {3}, .bytes = bytes}})};
    const auto add = [&](const std::string& name, const std::string& text) {
      seals.push_back(write_sealed(folder, name, {bytes_of(text)}));
    };
    add("model.safetensors.index.json", weights_index({{"embedding", one}, {"bias", two}}, 24));
    add("state.json", R"({"step": 7, "loss": 2.5, "schedule": "1f1b", "nested": {"hidden": 1}})");
    store.commit(step, seals, 9);
  }

  static test::Finished run(const std::vector<std::string>& words) {
    std::vector<std::string> command = {LOCKSTEP_COMMAND, "checkpoint"};
    command.insert(command.end(), words.begin(), words.end());
    return test::run_to_end(command);
  }

  void damage(int64_t step) {
    test::write_file(run_ / "checkpoints" / checkpoint_name(step) / "state.json", "{}");
  }

  test::TemporaryFolder run_;
};

TEST_F(CheckpointCommand, ShowTellsOfTheNewest) {
  const test::Finished printed = run({"show", run_.path().string()});
  EXPECT_EQ(printed.exit_code, 0) << printed.errors;
  EXPECT_THAT(
      printed.output,
      AllOf(HasSubstr("step     200\n"), HasSubstr("checkpoints/step_00000200\n"), HasSubstr("5 files"),
            HasSubstr("weights  24 B in 2 tensors\n"), HasSubstr("loss                 2.5\n"),
            HasSubstr("schedule             \"1f1b\"\n"), Not(HasSubstr("nested")),
            HasSubstr("name       type  shape   file\n"
                      "embedding  F32   [3, 1]  model-00001-of-00002.safetensors\n"
                      "bias       F32   [3]     model-00002-of-00002.safetensors\n")));
}

TEST_F(CheckpointCommand, ShowWritesJson) {
  const test::Finished printed = run({"show", (run_ / "checkpoints/step_00000100").string(), "--json"});
  ASSERT_EQ(printed.exit_code, 0) << printed.errors;
  const auto document = nlohmann::json::parse(printed.output);
  EXPECT_EQ(document["step"], 100);
  EXPECT_EQ(document["weight_bytes"], 24);
  EXPECT_EQ(document["tensors"][0]["name"], "embedding");
  EXPECT_EQ(document["tensors"][1]["shape"], nlohmann::json({3}));
  EXPECT_EQ(document["state"], nlohmann::json({{"step", 7}, {"loss", 2.5}, {"schedule", "1f1b"}}));
}

TEST_F(CheckpointCommand, VerifyWritesJson) {
  damage(200);
  const test::Finished printed = run({"verify", run_.path().string(), "--json"});
  EXPECT_EQ(printed.exit_code, 1) << printed.errors;
  const auto document = nlohmann::json::parse(printed.output);
  EXPECT_EQ(document["whole"], false);
  ASSERT_EQ(document["checkpoints"].size(), 2U);
  for (const auto& row : document["checkpoints"]) {
    const bool is_damaged = row["folder"].get<std::string>().ends_with("200");
    EXPECT_EQ(row["whole"], !is_damaged);
    EXPECT_TRUE(row.contains(is_damaged ? "problem" : "bytes"));
  }
}

TEST_F(CheckpointCommand, VerifyHasALineForEach) {
  const test::Finished whole = run({"verify", run_.path().string()});
  EXPECT_EQ(whole.exit_code, 0) << whole.errors;
  EXPECT_THAT(whole.output, AllOf(HasSubstr("whole      "), HasSubstr("step_00000100: step 100, 5 files, "),
                                  HasSubstr("step_00000200: step 200, 5 files, ")));
  damage(100);
  const test::Finished broken = run({"verify", run_.path().string()});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.output, AllOf(HasSubstr("not whole  checkpoint "),
                                   HasSubstr("step_00000100: state.json has 2 bytes, shorter than"),
                                   HasSubstr("step_00000200: step 200, 5 files, ")));
  EXPECT_EQ(run({"verify", (run_ / "checkpoints/step_00000100").string()}).exit_code, 1);
  EXPECT_EQ(run({"verify", (run_ / "checkpoints/step_00000200").string()}).exit_code, 0);
}

TEST_F(CheckpointCommand, ExportWritesWhatPythonLoads) {
  const std::string out = (run_ / "weights.pt").string();
  const test::Finished printed = run({"export", run_.path().string(), "--out", out});
  ASSERT_EQ(printed.exit_code, 0) << printed.errors;
  EXPECT_THAT(printed.output, HasSubstr("weights.pt: 2 tensors, 24 B, of "));
  test::Child python(
      {"/usr/bin/python3", "-c",
       "import sys, torch\nfor name, tensor in torch.load(sys.argv[1], weights_only=True).items():\n"
       "    print(name, tensor.tolist())",
       out});
  ASSERT_EQ(python.wait(), 0) << python.errors();
  EXPECT_EQ(python.output(), "embedding [[1.5], [200.0], [-2.0]]\nbias [1.5, 200.0, -2.0]\n");
}

TEST_F(CheckpointCommand, ExportReplacesAFileOnlyByForce) {
  const std::string out = (run_ / "weights.pt").string();
  test::write_file(out, "precious");
  const test::Finished refused = run({"export", run_.path().string(), "--out", out});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("weights.pt: is there already; hint: --force replaces it"));
  EXPECT_EQ(test::read_file(out), "precious");
  EXPECT_EQ(run({"export", run_.path().string(), "--out", out, "--force"}).exit_code, 0);
  EXPECT_THAT(test::read_file(out), testing::StartsWith("PK"));
}

// As root a rename would put a plain file into the place of a device for good. Each verb that writes a file
// is tried on a node of our own, or a pipe where no node can be made.
TEST_F(CheckpointCommand, AndItsSistersPutNoFileInThePlaceOfADevice) {
  const std::string run_folder = run_.path().string();
  const std::vector<std::vector<std::string>> commands = {
      {"checkpoint", "export", run_folder, "--force", "--out"},
      {"checkpoint", "show", run_folder, "--json"},
      {"checkpoint", "verify", run_folder, "--json"},
      {"plan", "allreduce", "--json"},
      {"plan", "pipeline", "--json"},
      {"simulate", "allreduce", "--json"},
      {"doctor", "--json"},
      {"lab", "list", "--json"}};
  for (const auto& words : commands) {
    test::TemporaryFolder folder;
    const fs::path node = folder / "node", link = folder / "link";
    const bool is_device = mknod(node.c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0;
    if (!is_device) {
      ASSERT_EQ(mkfifo(node.c_str(), 0600), 0);
    }
    fs::create_symlink("node", link);
    for (const fs::path& out : {node, link}) {
      SCOPED_TRACE(words[0] + " " + words[1] + " to " + out.string());
      std::vector<std::string> command = {LOCKSTEP_COMMAND};
      command.insert(command.end(), words.begin(), words.end());
      command.push_back(out.string());
      const test::Finished ended = test::run_to_end(command);
      if (is_device && words[0] != "doctor") {
        EXPECT_EQ(ended.exit_code, 0) << ended.errors;
      }
      EXPECT_TRUE(is_device ? fs::is_character_file(fs::symlink_status(node)) : fs::is_fifo(node));
      EXPECT_TRUE(fs::is_symlink(link));
      EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2);
    }
  }
}

TEST_F(CheckpointCommand, ExportWritesWhatALinkLeadsToAndRefusesAFolder) {
  const auto export_to = [&](const fs::path& out) {
    return run({"export", run_.path().string(), "--force", "--out", out.string()});
  };
  test::write_file(run_ / "old.pt", "old");
  fs::create_symlink("old.pt", run_ / "link.pt");
  fs::create_symlink("new.pt", run_ / "dangling.pt");
  for (const char* link : {"link.pt", "dangling.pt"}) {
    EXPECT_EQ(export_to(run_ / link).exit_code, 0);
    EXPECT_TRUE(fs::is_symlink(run_ / link));
  }
  for (const char* file : {"old.pt", "new.pt"}) {
    EXPECT_THAT(test::read_file(run_ / file), testing::StartsWith("PK"));
  }
  const test::Finished refused = export_to(run_ / "checkpoints");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("checkpoints: Is a directory; hint:"));
}

TEST_F(CheckpointCommand, NamesWhatItSkippedAndWhy) {
  damage(200);
  for (const char* verb : {"show", "export"}) {
    std::vector<std::string> words = {verb, run_.path().string()};
    if (verb == std::string("export")) words.insert(words.end(), {"--out", (run_ / "x.pt").string()});
    const test::Finished printed = run(words);
    EXPECT_EQ(printed.exit_code, 0) << printed.errors;
    EXPECT_THAT(printed.output, HasSubstr("step_00000100"));
    EXPECT_THAT(printed.errors, AllOf(HasSubstr("note: skipped checkpoint "),
                                      HasSubstr("step_00000200: state.json has 2 bytes, shorter than")));
  }
}

TEST_F(CheckpointCommand, RefusesWhatIsNoCheckpoint) {
  for (const char* verb : {"show", "verify"}) {
    const test::Finished printed = run({verb, (run_ / "none").string()});
    EXPECT_EQ(printed.exit_code, 2) << verb;
    EXPECT_THAT(printed.errors, HasSubstr("none: there is no such folder; hint:")) << verb;
  }
  EXPECT_EQ(run({"export", run_.path().string()}).exit_code, 2);
  damage(100);
  damage(200);
  EXPECT_EQ(run({"export", run_.path().string(), "--out", (run_ / "x").string()}).exit_code, 1);
  EXPECT_FALSE(fs::exists(run_ / "x"));
}

}  // namespace
}  // namespace lockstep::train
