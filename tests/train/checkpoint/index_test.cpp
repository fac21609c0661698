#include "train/checkpoint/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/error.h"
#include "support/temporary_folder.h"
#include "train/checkpoint/samples.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

TEST(WeightsIndex, IsAsOthersKnowIt) {
  const std::string text = weights_index({{"w", "model-00001-of-00001.safetensors"}}, 8);
  EXPECT_EQ(text,
            "{\n  \"metadata\": {\n    \"total_size\": 8\n  },\n  \"weight_map\": {\n"
            "    \"w\": \"model-00001-of-00001.safetensors\"\n  }\n}\n");
}

TEST(WeightsIndex, ReadsBack) {
  for (const WeightsIndex& index :
       {WeightsIndex{}, WeightsIndex{{{"größe\n", "a"}, {"", "b"}, {"x.y", "a"}}, 1'000'000'000'000}}) {
    EXPECT_EQ(parse_weights_index(weights_index(index.file_of, index.total_bytes), "index"), index);
  }
}

TEST(WeightsIndex, RefusesEverythingElse) {
  for (const char* text :
       {"", "[]", "{}", R"({"metadata":{"total_size":1}})", R"({"weight_map":{}})",
        R"({"metadata":{"total_size":1},"weight_map":{},"more":1})", R"({"metadata":{},"weight_map":{}})",
        R"({"metadata":{"total_size":1,"more":1},"weight_map":{}})", R"({"metadata":1,"weight_map":{}})",
        R"({"metadata":{"total_size":-1},"weight_map":{}})",
        R"({"metadata":{"total_size":"1"},"weight_map":{}})",
        R"({"metadata":{"total_size":1.5},"weight_map":{}})",
        R"({"metadata":{"total_size":1},"weight_map":[]})",
        R"({"metadata":{"total_size":1},"weight_map":{"a":1}})",
        R"({"metadata":{"total_size":1},"weight_map":{"a":"../b"}})",
        R"({"metadata":{"total_size":1},"weight_map":{"a":"b","a":"b"}})",
        R"({"metadata":{"total_size":18446744073709551615},"weight_map":{}})"}) {
    EXPECT_THAT([&] { parse_weights_index(text, "index"); }, ThrowsMessage<Error>(StartsWith("index: ")))
        << text;
  }
  EXPECT_THROW(weights_index({{"w", "a/b"}}, 1), UsageError);
  EXPECT_THROW(weights_index({{"\xff", "a"}}, 1), UsageError);
}

/// Two files of one weight each, and their index.
class Model : public testing::Test {
 protected:
  Model() {
    write("model-00001-of-00002.safetensors", "first");
    write("model-00002-of-00002.safetensors", "second");
    write_index(
        {{"first", "model-00001-of-00002.safetensors"}, {"second", "model-00002-of-00002.safetensors"}}, 8);
  }

  void write(const std::string& file, const std::string& weight) {
    fs::remove(folder_ / file);
    write_safetensors(folder_.path(), file,
                      {{.name = weight, .type = TensorType::kF32, .shape = {1}, .bytes = bytes_of("1234")}});
  }

  void write_index(const std::map<std::string, std::string>& file_of, uint64_t bytes) {
    test::write_file(folder_ / "model.safetensors.index.json", weights_index(file_of, bytes));
  }

  auto refuses(const std::string& text) {
    return ThrowsMessage<Error>(AllOf(HasSubstr(folder_.path().string()), HasSubstr(text)));
  }

  test::TemporaryFolder folder_;
};

TEST_F(Model, HasTheWeightsOfAllFiles) {
  write_sealed(folder_.path(), "optimizer-00001-of-00001.safetensors", {bytes_of("not looked at")});
  const ModelWeights model(folder_.path());
  ASSERT_EQ(model.weights().size(), 2U);
  EXPECT_EQ(model.weights()[0].tensor.name, "first");
  EXPECT_EQ(model.weights()[1].file, "model-00002-of-00002.safetensors");
  EXPECT_TRUE(std::ranges::equal(model.weights()[1].tensor.bytes, bytes_of("1234")));
  EXPECT_EQ(model.total_bytes(), 8U);
}

TEST_F(Model, IsRefusedIfAFileIsMissingOrOneTooMany) {
  const auto open = [&] { ModelWeights(folder_.path()); };
  write("model-00003-of-00003.safetensors", "third");
  EXPECT_THAT(open, refuses("found \"model-00001-of-00002.safetensors\" among 3 files of the model, expected "
                            "model-00001-of-00003.safetensors"));
  fs::remove(folder_ / "model-00003-of-00003.safetensors");
  fs::remove(folder_ / "model-00001-of-00002.safetensors");
  EXPECT_THAT(open, refuses("expected model-00001-of-00001.safetensors"));
  fs::remove(folder_ / "model-00002-of-00002.safetensors");
  EXPECT_THAT(open, refuses("has no model-00001-of-00001.safetensors"));
}

TEST_F(Model, IsRefusedIfAWeightIsInTwoFiles) {
  write("model-00002-of-00002.safetensors", "first");
  EXPECT_THAT(
      [&] { ModelWeights(folder_.path()); },
      refuses("\"first\" is in model-00001-of-00002.safetensors and in model-00002-of-00002.safetensors"));
}

TEST_F(Model, IsRefusedIfTheIndexTellsOtherwise) {
  const auto open = [&] { ModelWeights(folder_.path()); };
  const std::string one = "model-00001-of-00002.safetensors";
  const std::string two = "model-00002-of-00002.safetensors";
  write_index({{"first", one}, {"second", one}}, 8);
  EXPECT_THAT(open, refuses("\"second\" is in " + two + ", not in " + one));
  write_index({{"first", one}}, 8);
  EXPECT_THAT(open, refuses("\"second\" is in " + two + ", not in the index"));
  write_index({{"first", one}, {"second", two}, {"third", two}}, 8);
  EXPECT_THAT(open, refuses("tells of 3 weights with 8 bytes, found 2 with 8"));
  write_index({{"first", one}, {"second", two}}, 9);
  EXPECT_THAT(open, refuses("tells of 2 weights with 9 bytes"));
  fs::remove(folder_ / "model.safetensors.index.json");
  EXPECT_THAT(open, refuses("No such file"));
}

}  // namespace
}  // namespace lockstep::train
