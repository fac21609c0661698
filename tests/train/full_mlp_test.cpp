#include "lockstep/train/models/full_mlp.h"

#include <ATen/ops/mse_loss.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/init.h>

#include "lockstep/error.h"

namespace lockstep {
namespace {

std::vector<torch::Tensor> values(const FullMLP& model) {
  return model->parameters();
}

TEST(FullMLP, KeepsTheShapeOfItsInput) {
  FullMLP model(6, 3);
  EXPECT_EQ(model(torch::zeros({5, 6})).sizes(), torch::IntArrayRef({5, 6}));
  EXPECT_EQ(model(torch::zeros({2, 3, 6})).sizes(), torch::IntArrayRef({2, 3, 6}));
  EXPECT_EQ(model(torch::zeros({6})).sizes(), torch::IntArrayRef({6}));
  EXPECT_EQ(model(torch::zeros({0, 6})).sizes(), torch::IntArrayRef({0, 6}));
}

TEST(FullMLP, HasSixteenLayersByDefaultNamedByNumber) {
  const FullMLP model(4);
  const auto parameters = model->named_parameters();
  ASSERT_EQ(parameters.size(), 32U);
  for (int64_t layer = 0; layer < 16; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    ASSERT_NE(parameters.find(name + ".weight"), nullptr) << name;
    EXPECT_EQ(parameters[name + ".weight"].sizes(), torch::IntArrayRef({4, 4}));
    EXPECT_EQ(parameters[name + ".bias"].sizes(), torch::IntArrayRef({4}));
  }
}

TEST(FullMLP, AppliesReluBetweenLayersAndNotAfterTheLast) {
  FullMLP model(3, 2, 5);
  const auto p = values(model);
  const auto input = torch::arange(12, torch::kFloat32).view({4, 3}) - 6;
  const auto by_hand = torch::addmm(p[3], torch::addmm(p[1], input, p[0].t()).relu(), p[2].t());
  EXPECT_TRUE(torch::allclose(model(input), by_hand));
  EXPECT_LT(by_hand.min().item<float>(), 0) << "no output is negative: this input cannot show a last ReLU";
}

TEST(FullMLP, ALayersWeightsDependOnSeedAndLayerAlone) {
  const auto shallow = values(FullMLP(8, 8, 42));
  const auto deep = values(FullMLP(8, 16, 42));
  for (size_t i = 0; i < shallow.size(); ++i) EXPECT_TRUE(torch::equal(shallow[i], deep[i])) << i;
}

TEST(FullMLP, LayersAndSeedsDiffer) {
  const auto one = values(FullMLP(8, 3, 1));
  const auto other =
      values(FullMLP(8, 3, uint64_t{1} << 32 | 1));  // torch's generator keeps 32 bits of a seed
  EXPECT_FALSE(torch::equal(one[0], one[2]));
  EXPECT_FALSE(torch::equal(one[2], one[4]));
  EXPECT_FALSE(torch::equal(one[0], other[0]));
}

TEST(FullMLP, TakesTheSeedOfTorchAndLeavesItsGeneratorAlone) {
  torch::manual_seed(7);
  const auto expected_draw = torch::rand({3});
  torch::manual_seed(7);
  const auto first = values(FullMLP(8, 2));
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected_draw));
  const auto second = values(FullMLP(8, 2));
  EXPECT_TRUE(torch::equal(first[0], second[0]));
  EXPECT_TRUE(torch::equal(first[0], values(FullMLP(8, 2, 7))[0]));
}

TEST(FullMLP, KeepsTheSizeOfASignalThroughSixteenLayers) {
  FullMLP model(256, 16, 3);
  torch::manual_seed(0);
  const double size = model(torch::randn({64, 256})).square().mean().item<double>();
  EXPECT_GT(size, 0.1);
  EXPECT_LT(size, 10);
}

TEST(FullMLP, GradientsEqualFiniteDifferences) {
  torch::manual_seed(0);
  FullMLP model(5, 4, 11);
  model->to(torch::kFloat64);
  // With biases of zero, a sample whose inputs are all cut off would lie exactly on the next ReLU's kink.
  for (auto& parameter : model->parameters()) {
    if (parameter.dim() == 1) torch::nn::init::uniform_(parameter, -0.5, 0.5);
  }
  const auto input = torch::randn({7, 5}, torch::kFloat64);
  const auto target = torch::randn({7, 5}, torch::kFloat64);
  at::mse_loss(model(input), target).backward();
  const torch::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  int checked = 0;
  for (const auto& parameter : model->named_parameters()) {
    const auto flat = parameter->view({-1});
    const auto gradient = parameter->grad().view({-1});
    for (int64_t i = 0; i < flat.numel(); ++i, ++checked) {
      const double value = flat[i].item<double>();
      flat[i] = value + kStep;
      const double above = at::mse_loss(model(input), target).item<double>();
      flat[i] = value - kStep;
      const double below = at::mse_loss(model(input), target).item<double>();
      flat[i] = value;
      EXPECT_NEAR(gradient[i].item<double>(), (above - below) / (2 * kStep), 1e-7)
          << parameter.key() << " at " << i;
    }
  }
  EXPECT_EQ(checked, 4 * (25 + 5));
}

TEST(FullMLP, RefusesSizesBelowOne) {
  EXPECT_THROW(FullMLP(0, 16), UsageError);
  EXPECT_THROW(FullMLP(8, 0), UsageError);
  EXPECT_THROW(FullMLP(-3, 16), UsageError);
}

TEST(FullMLP, RefusesAnotherWidthByName) {
  FullMLP model(8, 2);
  try {
    model(torch::zeros({3, 7}));
    FAIL() << "a width of 7 was taken for 8";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("[3, 7], expected [..., 8]"));
  }
  EXPECT_THROW(model(torch::zeros({})), UsageError);
}

}  // namespace
}  // namespace lockstep
