#include "lockstep/train/optim/clip_grad_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "lockstep/error.h"

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Tensors = std::vector<torch::Tensor>;

Tensors make_parameters(torch::ScalarType type = torch::kFloat) {
  torch::manual_seed(1);
  Tensors parameters;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{70, 90}, {5}, {0, 2}, {}, {20'001}}) {
    parameters.push_back(torch::zeros(shape, type).requires_grad_());
    parameters.back().mutable_grad() = torch::randn(shape).to(type);
  }
  parameters.push_back(torch::zeros({3}, type).requires_grad_());  // without a gradient
  return parameters;
}

double norm_of(const Tensors& parameters) {
  return clip_grad_norm_(parameters, kInfinity);
}

TEST(ClipGradNorm, ScalesAsLibTorchsDoes) {
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    for (const double norm_type : {2.0, 1.0, 3.0, kInfinity}) {
      for (const double max_norm : {0.0, 0.5, 1e9}) {
        auto ours = make_parameters(type);
        auto theirs = make_parameters(type);
        theirs.erase(theirs.begin() + 2);  // theirs has no maximum of no elements
        const double norm = clip_grad_norm_(ours, max_norm, norm_type);
        const double expected = torch::nn::utils::clip_grad_norm_(theirs, max_norm, norm_type);
        EXPECT_NEAR(norm, expected, 1e-5 * expected) << norm_type;
        ours.erase(ours.begin() + 2);
        for (size_t i = 0; i + 1 < ours.size(); ++i) {
          EXPECT_TRUE(torch::allclose(ours[i].grad(), theirs[i].grad(), 1e-5, 1e-12))
              << norm_type << " " << i;
        }
      }
    }
  }
}

TEST(ClipGradNorm, AddsATinyNumberToTheNormItDividesBy) {
  // As torch does: max_norm / (norm + 1e-6).
  const auto weight = torch::zeros({1}, torch::kDouble).requires_grad_();
  weight.mutable_grad() = torch::full({1}, 1e-6, torch::kDouble);
  clip_grad_norm_(weight, 5e-7);
  EXPECT_DOUBLE_EQ(weight.grad().item<double>(), 0.25e-6);
}

TEST(ClipGradNorm, IsExactWhereFloatSumsAreNot) {
  // 1 and 2^24 times a square of 2^-24: a sum in float never leaves 1.
  const auto weight = torch::zeros({(1 << 24) + 1}).requires_grad_();
  weight.mutable_grad() = torch::full({(1 << 24) + 1}, std::exp2(-12));
  weight.grad()[0] = 1;
  EXPECT_EQ(clip_grad_norm_(weight, kInfinity), std::sqrt(2.0));
}

TEST(ClipGradNorm, CountsATiedWeightOnceAndScalesItOnce) {
  auto weight = torch::zeros({2}).requires_grad_();
  weight.mutable_grad() = torch::tensor({3.0F, 4.0F});
  EXPECT_EQ(clip_grad_norm_({weight, weight, weight}, 1), 5);
  EXPECT_TRUE(torch::allclose(weight.grad(), torch::tensor({0.6F, 0.8F})));
}

TEST(ClipGradNorm, GivesTheSameBitsForEveryNumberOfThreadsAndLayout) {
  const int threads = torch::get_num_threads();
  const double expected = norm_of(make_parameters());
  torch::set_num_threads(3);
  EXPECT_EQ(norm_of(make_parameters()), expected);
  torch::set_num_threads(1);
  EXPECT_EQ(norm_of(make_parameters()), expected);
  torch::set_num_threads(threads);
  auto moved = make_parameters();
  for (auto& parameter : moved) {
    if (!parameter.grad().defined()) continue;
    const auto room = torch::zeros({parameter.numel() + 3});
    parameter.mutable_grad() =
        room.narrow(0, 3, parameter.numel()).view(parameter.sizes()).copy_(parameter.grad());
  }
  moved[0].mutable_grad() = moved[0].grad().t().contiguous().t();
  EXPECT_EQ(norm_of(moved), expected);
}

TEST(ClipGradNorm, TakesHalfPrecision) {
  const auto weight = torch::zeros({2}, torch::kBFloat16).requires_grad_();
  weight.mutable_grad() = torch::tensor({3.0F, 4.0F}).to(torch::kBFloat16);
  EXPECT_EQ(clip_grad_norm_(weight, 2.5), 5);
  EXPECT_TRUE(torch::equal(weight.grad(), torch::tensor({1.5F, 2.0F}).to(torch::kBFloat16)));
}

TEST(ClipGradNorm, IsZeroWithoutGradients) {
  EXPECT_EQ(clip_grad_norm_(torch::zeros({2}), 1), 0);
  EXPECT_EQ(clip_grad_norm_(Tensors{}, 1), 0);
}

TEST(ClipGradNorm, TellsOfANormThatIsNotFinite) {
  const auto weight = torch::zeros({2}).requires_grad_();
  for (const double norm_type : {2.0, 3.0, kInfinity}) {
    weight.mutable_grad() = torch::tensor({std::nanf(""), 1.0F});
    EXPECT_THROW(clip_grad_norm_(weight, 1, norm_type, /*error_if_nonfinite=*/true), Error);
    EXPECT_EQ(weight.grad()[1].item<float>(), 1) << "gradients were changed before the error";
    EXPECT_TRUE(std::isnan(clip_grad_norm_(weight, 1, norm_type)));
    EXPECT_TRUE(weight.grad().isnan().all().item<bool>());
  }
}

TEST(ClipGradNorm, RefusesWhatItCannotClipByNameAndValue) {
  const auto weight = torch::zeros({2, 3}).requires_grad_();
  weight.mutable_grad() = torch::ones({2, 3}).to_sparse();
  try {
    clip_grad_norm_({torch::zeros({1}), weight}, 1);
    FAIL() << "a sparse gradient was taken";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("parameter 1, of shape [2, 3], is not dense"));
  }
  EXPECT_THROW(clip_grad_norm_(Tensors{}, -1), UsageError);
  EXPECT_THROW(clip_grad_norm_(Tensors{}, 1, 0), UsageError);
  EXPECT_THROW(clip_grad_norm_(Tensors{}, 1, std::nan("")), UsageError);
}

}  // namespace
}  // namespace lockstep
