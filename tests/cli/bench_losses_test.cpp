// A benchmark prints no times of systems that did not do the same work.
#include "cli/bench_losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal_of(const std::vector<SystemLosses>& systems) {
  try {
    require_equal_losses("mlp:128x16", systems);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(EqualLosses, MayDifferByTheOrderOfSums) {
  EXPECT_EQ(refusal_of({{"lockstep", 2.0, 1.5}, {"pytorch-ddp", 2.001, 1.499}, {"libtorch", 2.0, 1.5}}), "");
}

TEST(EqualLosses, ADifferentLastLossIsRefusedByNameAndValue) {
  EXPECT_THAT(refusal_of({{"lockstep", 2.0, 1.5}, {"libtorch", 2.0, 1.5}, {"pytorch-ddp", 2.0, 1.503}}),
              AllOf(HasSubstr("mlp:128x16"),
                    HasSubstr("the last loss of pytorch-ddp is 1.503, that of lockstep 1.5")));
}

TEST(EqualLosses, ADifferentFirstLossIsRefused) {
  EXPECT_THAT(refusal_of({{"lockstep", 2.0, 1.5}, {"libtorch", 2.1, 1.5}}),
              HasSubstr("the first loss of libtorch"));
}

TEST(EqualLosses, WhatIsNotFiniteAgreesWithNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(losses_agree(infinity, infinity, 0.1));
  EXPECT_FALSE(losses_agree(infinity, -infinity, 0.1));
  EXPECT_THAT(refusal_of({{"lockstep", 2.0, nan}}), HasSubstr("the last loss of lockstep is nan"));
  EXPECT_NE(refusal_of({{"lockstep", infinity, 1.5}, {"libtorch", infinity, 1.5}}), "");
  EXPECT_NE(refusal_of({{"lockstep", 2.0, 1.5}, {"libtorch", 2.0, nan}}), "");
}

TEST(EqualLosses, ToleranceIsRelative) {
  EXPECT_TRUE(losses_agree(1e-6, 1.0005e-6, 1e-3));
  EXPECT_FALSE(losses_agree(1e-6, 1.002e-6, 1e-3));
  EXPECT_TRUE(losses_agree(0, 0, 1e-3));
}

}  // namespace
}  // namespace lockstep::cli
