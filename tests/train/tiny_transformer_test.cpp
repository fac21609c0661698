#include "lockstep/train/models/tiny_transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "lockstep/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr TransformerConfig kSmall = {.vocab_size = 11,
                                      .hidden_size = 16,
                                      .num_attention_heads = 2,
                                      .intermediate_size = 24,
                                      .max_position_embeddings = 12};

TEST(TinyTransformer, EditingATokenLeavesEarlierLogitsAlone) {
  TinyTransformer model(kSmall, 1);
  const torch::NoGradGuard no_grad;
  const auto tokens = torch::randint(11, {3, 12}, torch::kLong);
  const auto before = model->forward(tokens);
  for (int64_t place = 0; place < 12; ++place) {
    auto edited = tokens.clone();
    edited.select(1, place).add_(1).remainder_(11);
    const auto after = model->forward(edited);
    EXPECT_TRUE(torch::equal(after.slice(1, 0, place), before.slice(1, 0, place))) << place;
    EXPECT_FALSE(torch::equal(after.select(1, place), before.select(1, place))) << place;
    EXPECT_FALSE(torch::equal(after.select(1, 11), before.select(1, 11))) << "the last sees all";
  }
}

TEST(TinyTransformer, TheHeadSharesTheTokenEmbeddingsWeight) {
  TinyTransformer model(kSmall, 1);
  const auto parameters = model->named_parameters();
  EXPECT_TRUE(parameters["layers.head.weight"].is_same(parameters["layers.embeddings.token.weight"]));
}

TEST(TinyTransformer, TheLossIsThatOfTheTokenBehind) {
  TinyTransformer model(kSmall, 1);
  const torch::NoGradGuard no_grad;
  const auto tokens = torch::randint(11, {2, 13}, torch::kLong);
  const auto inputs = tokens.slice(1, 0, 12), next = tokens.slice(1, 1);
  const auto log_p = torch::log_softmax(model->forward(inputs), -1);
  const auto expected = -log_p.gather(-1, next.unsqueeze(-1)).mean().item<double>();
  EXPECT_NEAR(model->forward(inputs, next).item<double>(), expected, 1e-6);
  EXPECT_NEAR(expected, std::log(11), 0.1) << "first guesses are even";
}

TEST(TinyTransformer, StartsFromTheSeedAlone) {
  const auto weight = [](uint64_t seed) {
    return TinyTransformer(kSmall, seed)->named_parameters()["layers.block1.mlp_in.weight"].clone();
  };
  torch::manual_seed(3);
  const auto one = weight(7);
  torch::manual_seed(4);
  EXPECT_TRUE(torch::equal(weight(7), one));
  EXPECT_FALSE(torch::equal(weight(8), one));
}

TEST(TinyTransformer, RefusesWhatItCannotRead) {
  TinyTransformer model(kSmall, 1);
  EXPECT_THAT(
      [&] {
        model->forward(torch::zeros({2, 13}, torch::kLong));
      },
      ThrowsMessage<UsageError>(HasSubstr("a sequence of 13 tokens, at most 12 fit")));
  EXPECT_THAT([&] { model->forward(torch::zeros({2, 12})); }, ThrowsMessage<UsageError>(HasSubstr("Float")));
  EXPECT_THAT([&] { model->forward(torch::zeros({12}, torch::kLong)); },
              ThrowsMessage<UsageError>(HasSubstr("[12]")));
  EXPECT_THAT([] { TinyTransformer(TransformerConfig{.num_attention_heads = 5}, 0); },
              ThrowsMessage<UsageError>(HasSubstr("num_attention_heads is 5")));
}

}  // namespace
}  // namespace lockstep
