#include "train/checkpoint/manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/error.h"
#include "support/child.h"
#include "support/temporary_folder.h"
#include "train/checkpoint/samples.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Manifest, ReadsBack) {
  const Manifest manifest = {.step = 200, .files = {{"a.json", 17, 0x0123456789abcdef}, {"b", 0, 0}}};
  const std::string text = manifest_json(manifest);
  EXPECT_EQ(text,
            "{\"format\": 1,\n\"step\": 200,\n\"files\": {\n"
            "\"a.json\": {\"bytes\": 17, \"xxh3\": \"0123456789abcdef\"},\n"
            "\"b\": {\"bytes\": 0, \"xxh3\": \"0000000000000000\"}\n}}\n");
  EXPECT_EQ(parse_manifest(text, "manifest.json"), manifest);
}

TEST(Manifest, IsNotWrittenWithNamesThatCannotBeRead) {
  for (const Manifest& manifest :
       {Manifest{.files = {{"a", 1, 1}, {"b", 1, 1}, {"a", 1, 1}}}, Manifest{.files = {{"../a", 1, 1}}},
        Manifest{.files = {{"manifest.json", 1, 1}}}}) {
    EXPECT_THROW(manifest_json(manifest), UsageError);
  }
}

TEST(Manifest, RefusesEverythingElse) {
  for (const char* text :
       {"",
        "[]",
        "{}",
        "1",
        "{\"format\":1}",
        R"({"format":1,"step":1})",
        R"({"format":1,"files":{}})",
        R"({"format":1,"step":-1,"files":{}})",
        R"({"format":1,"step":1.0,"files":{}})",
        R"({"format":1,"step":1000000000000,"files":{}})",
        R"({"format":1,"step":"1","files":{}})",
        R"({"format":1,"step":1,"files":[]})",
        R"({"format":1,"step":1,"files":{},"more":1})",
        R"({"format":1,"step":1,"step":1,"files":{}})",
        R"({"format":1,"step":1,"files":{}}x)",
        R"({"format":1,"step":1,"files":{"a":{}}})",
        R"({"format":1,"step":1,"files":{"a":1}})",
        R"({"format":1,"step":1,"files":{"a":{"bytes":1}}})",
        R"({"format":1,"step":1,"files":{"a":{"bytes":-1,"xxh3":"0123456789abcdef"}}})",
        R"({"format":1,"step":1,"files":{"a":{"bytes":9223372036854775808,"xxh3":"0123456789abcdef"}}})",
        R"({"format":1,"step":1,"files":{"a":{"bytes":1,"xxh3":"0123456789abcde"}}})",
        R"({"format":1,"step":1,"files":{"a":{"bytes":1,"xxh3":"0123456789abcdefa"}}})",
        R"({"format":1,"step":1,"files":{"a":{"bytes":1,"xxh3":"0123456789ABCDEF"}}})",
        R"({"format":1,"step":1,"files":{"a":{"bytes":1,"xxh3":"-123456789abcdef"}}})",
        R"({"format":1,"step":1,"files":{"a":{"bytes":1,"xxh3":123}}})",
        R"({"format":1,"step":1,"files":{"a":{"bytes":1,"xxh3":"0123456789abcdef","x":0}}})",
        R"({"format":1,"step":1,"files":{"../a":{"bytes":1,"xxh3":"0123456789abcdef"}}})",
        R"({"format":1,"step":1,"files":{"manifest.json":{"bytes":1,"xxh3":"0123456789abcdef"}}})"}) {
    EXPECT_THAT([&] { parse_manifest(text, "here"); }, ThrowsMessage<Error>(testing::StartsWith("here: ")))
        << text;
  }
  EXPECT_THAT([] { parse_manifest(R"({"format":2})", "here"); },
              ThrowsMessage<Error>(HasSubstr("here: format 2 instead of 1; hint: a newer Lockstep")));
  EXPECT_THAT(
      [] {
        parse_manifest({"{\"format\":1,\"step\":1,\"files\":{}}\0", 34}, "here");
      },
      ThrowsMessage<Error>(HasSubstr("is zero")));
  const std::string deep = R"({"format":1,"step":1,"files":)" + std::string(100'000, '[');
  EXPECT_THAT([&] { parse_manifest(deep, "here"); }, ThrowsMessage<Error>(HasSubstr("deeper than 16")));
}

/// A whole checkpoint of step 7.
class VerifyCheckpoint : public testing::Test {
 protected:
  VerifyCheckpoint() {
    fs::create_directory(folder_);
    seals_ = {write_sealed(folder_, "model", {bytes_of("weights")}),
              write_sealed(folder_, "state", {bytes_of("")})};
    write_sealed(folder_, "manifest.json", {bytes_of(manifest_json({.step = 7, .files = seals_}))});
  }

  auto refuses(const std::string& what) {
    return ThrowsMessage<Error>(AllOf(HasSubstr("checkpoint " + folder_.string() + ": "), HasSubstr(what)));
  }

  test::TemporaryFolder parent_;
  fs::path folder_ = parent_ / "step_00000007";
  std::vector<Seal> seals_;
};

TEST_F(VerifyCheckpoint, ReturnsTheManifestOfAWholeOne) {
  EXPECT_EQ(verify_checkpoint(folder_), (Manifest{.step = 7, .files = seals_}));
}

TEST_F(VerifyCheckpoint, NamesTheFileAndWhatDiffers) {
  const auto verify = [&] { verify_checkpoint(folder_); };
  test::write_file(folder_ / "model", "weight");
  EXPECT_THAT(verify, refuses("model has 6 bytes, shorter than the 7 of the manifest"));
  test::write_file(folder_ / "model", "weights!");
  EXPECT_THAT(verify, refuses("model has 8 bytes, longer than the 7 of the manifest"));
  test::write_file(folder_ / "model", "Weights");
  EXPECT_THAT(verify, refuses(fmt::format("instead of {:016x}: its bytes were altered", seals_[0].xxh3)));
  fs::remove(folder_ / "model");
  EXPECT_THAT(verify, refuses("model is missing"));
  fs::create_directory(folder_ / "model");
  EXPECT_THAT(verify, refuses("model is not a regular file"));
  fs::remove(folder_ / "model");
  fs::create_symlink("state", folder_ / "model");
  EXPECT_THAT(verify, refuses("model is not a regular file"));
}

TEST_F(VerifyCheckpoint, RefusesFilesThatAreNotInTheManifest) {
  test::write_file(folder_ / "more\n", "");
  EXPECT_THAT([&] { verify_checkpoint(folder_); }, refuses("\"more\\n\" is not in the manifest"));
}

TEST_F(VerifyCheckpoint, RefusesOneWithoutManifest) {
  fs::remove(folder_ / "manifest.json");
  EXPECT_THAT([&] { verify_checkpoint(folder_); }, refuses("manifest.json is missing"));
  EXPECT_THAT([&] { verify_checkpoint(parent_ / "none"); }, ThrowsMessage<Error>(HasSubstr("No such file")));
}

TEST_F(VerifyCheckpoint, RefusesOneOfAnotherStep) {
  fs::rename(folder_, parent_ / "step_00000008");
  folder_ = parent_ / "step_00000008";
  EXPECT_THAT([&] { verify_checkpoint(folder_); }, refuses("manifest.json is of step 7"));
  fs::rename(folder_, parent_ / "best");
  EXPECT_EQ(verify_checkpoint(parent_ / "best").step, 7);
}

TEST_F(VerifyCheckpoint, RefusesEveryTruncationAndEveryFlippedByteOfEveryFile) {
  for (const char* name : {"model", "manifest.json"}) {
    const std::string text = test::read_file(folder_ / name);
    for (size_t at = 0; at < text.size(); ++at) {
      test::write_file(folder_ / name, text.substr(0, at));
      // Without its last newline a manifest still says all it says.
      if (at + 1 < text.size() || name == std::string("model")) {
        EXPECT_THROW(verify_checkpoint(folder_), Error) << name << " cut at " << at;
      }
      std::string altered = text;
      altered[at] ^= 0x01;
      test::write_file(folder_ / name, altered);
      try {
        // White space between the words of the manifest means nothing.
        EXPECT_EQ(verify_checkpoint(folder_), (Manifest{.step = 7, .files = seals_})) << name << " at " << at;
        EXPECT_TRUE(name == std::string("manifest.json") && text[at] <= ' ') << name << " at " << at;
      } catch (const Error&) {
      }
    }
    test::write_file(folder_ / name, text);
  }
}

}  // namespace
}  // namespace lockstep::train
