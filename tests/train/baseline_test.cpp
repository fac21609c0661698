#include "train/baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/error.h"

namespace lockstep::train {
namespace {

constexpr BaselineOptions kSmall = {.dim = 32, .depth = 16, .batch = 32, .steps = 150, .lr = 1e-3, .seed = 1};

bool go_on(int64_t, double, double) {
  return true;
}

TEST(Baseline, LearnsWhatHoldsForUnseenSamples) {
  const BaselineResult result = train_baseline(kSmall, go_on);
  ASSERT_EQ(result.losses.size(), 150U);
  EXPECT_LT(result.losses.back(), result.losses.front());
  EXPECT_LT(result.validation_after, result.validation_before);
  EXPECT_LT(result.validation_after, 0.7) << "the mean alone gives 1";
  EXPECT_EQ(result.parameters, 16 * (32 * 32 + 32));
}

TEST(Baseline, ThirtyStepsLowerTheLoss) {
  BaselineOptions options = kSmall;
  options.steps = 30;
  const BaselineResult result = train_baseline(options, go_on);
  EXPECT_LT(result.losses.back(), result.losses.front());
  EXPECT_LT(result.validation_after, result.validation_before);
}

TEST(Baseline, TheSameSeedGivesTheSameBits) {
  BaselineOptions options = kSmall;
  options.steps = 10;
  const BaselineResult one = train_baseline(options, go_on);
  const BaselineResult same = train_baseline(options, go_on);
  EXPECT_EQ(one.losses, same.losses);
  EXPECT_EQ(one.validation_after, same.validation_after);
  options.seed = 2;
  EXPECT_NE(train_baseline(options, go_on).losses, one.losses);
}

TEST(Baseline, ALongerRunStartsWithTheShorterOnesLosses) {
  BaselineOptions options = kSmall;
  options.steps = 5;
  const auto shorter = train_baseline(options, go_on).losses;
  options.steps = 9;
  auto longer = train_baseline(options, go_on).losses;
  longer.resize(5);
  EXPECT_EQ(longer, shorter);
}

TEST(Baseline, StopsAtTheStepWhereTheWatcherSaysNo) {
  std::vector<int64_t> seen;
  const auto result = train_baseline(kSmall, [&](int64_t done, double, double) {
    seen.push_back(done);
    return done < 3;
  });
  EXPECT_THAT(seen, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(result.losses.size(), 3U);
}

TEST(Baseline, NamesTheStepWhoseLossIsNotFinite) {
  BaselineOptions options = kSmall;
  options.lr = 1000;
  try {
    train_baseline(options, go_on);
    FAIL() << "a learning rate of 1000 gave finite losses";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::ContainsRegex("loss is (nan|inf) at step [0-9]+ of 150; hint: lower --lr"));
  }
}

}  // namespace
}  // namespace lockstep::train
