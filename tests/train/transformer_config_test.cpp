#include "lockstep/train/models/transformer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "lockstep/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(TransformerConfig, TheProjectsFileHoldsTheDefaults) {
  EXPECT_EQ(read_config(LOCKSTEP_CONFIG), TransformerConfig());
}

TEST(TransformerConfig, ComesBackFromItsOwnText) {
  const TransformerConfig config = {.vocab_size = 7,
                                    .hidden_size = 12,
                                    .num_hidden_layers = 3,
                                    .num_attention_heads = 4,
                                    .intermediate_size = 5,
                                    .max_position_embeddings = 9,
                                    .layer_norm_eps = 1e-6,
                                    .hidden_dropout_prob = 0.1,
                                    .attention_probs_dropout_prob = 0.2};
  EXPECT_EQ(parse_config(to_json(config), "text"), config);
}

TEST(TransformerConfig, IsRefusedByKeyAndValue) {
  const std::vector<std::pair<const char*, const char*>> mistakes = {
      {"[]", "[], expected a JSON object"},
      {"{", "parse error"},
      {"", "parse error"},
      {R"({"hiden_size": 64})", "\"hiden_size\" is not known; hint: known are vocab_size"},
      {R"({"hidden_size": 64, "hidden_size": 32})", "\"hidden_size\" is given twice"},
      {R"({"hidden_size": 64.5})", "hidden_size is 64.5, expected a whole number"},
      {R"({"hidden_size": "64"})", "hidden_size is \"64\""},
      {R"({"hidden_size": 18446744073709551615})", "hidden_size is 18446744073709551615"},
      {R"({"vocab_size": 0})", "vocab_size is 0, expected 1 to 1000000"},
      {R"({"num_hidden_layers": 0})", "num_hidden_layers is 0"},
      {R"({"num_hidden_layers": -2})", "num_hidden_layers is -2"},
      {R"({"num_attention_heads": 3})", "num_attention_heads is 3, which does not divide hidden_size, 64"},
      {R"({"hidden_dropout_prob": 1})", "hidden_dropout_prob is 1"},
      {R"({"hidden_dropout_prob": -0.1})", "hidden_dropout_prob is -0.1"},
      {R"({"layer_norm_eps": 0})", "layer_norm_eps is 0"},
      {R"({"layer_norm_eps": null})", "layer_norm_eps is null, expected a number"}};
  for (const auto& [json, said] : mistakes) {
    try {
      parse_config(json, "model.json");
      ADD_FAILURE() << json << " was taken";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("model.json: "));
      EXPECT_THAT(error.what(), HasSubstr(said));
    }
  }
}

}  // namespace
}  // namespace lockstep
