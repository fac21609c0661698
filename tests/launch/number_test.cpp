#include "launch/number.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

using testing::ThrowsMessage;

TEST(ParseNumber, ReadsWholeNumbersInRange) {
  EXPECT_EQ(parse_number("RANK", "0", 0, 7), 0);
  EXPECT_EQ(parse_number("RANK", "7", 0, 7), 7);
}

TEST(ParseNumber, RefusesByOriginAndValue) {
  EXPECT_THAT([] { parse_number("RANK", "8", 0, 7); },
              ThrowsMessage<UsageError>("RANK: 8 is not between 0 and 7"));
  EXPECT_THAT([] { parse_number("--nnodes", "2x", 1, 7); },
              ThrowsMessage<UsageError>("--nnodes: '2x' is not a whole number"));
  EXPECT_THAT([] { parse_number("--nnodes", "-0", 0, 7); },
              ThrowsMessage<UsageError>("--nnodes: -0 is not between 0 and 7"));
  EXPECT_THAT([] { parse_number("--nnodes", "", 1, 7); },
              ThrowsMessage<UsageError>("--nnodes: '' is not a whole number"));
  EXPECT_THAT([] { parse_number("--nnodes", "99999999999999", 1, 7); },
              ThrowsMessage<UsageError>("--nnodes: 99999999999999 is not between 1 and 7"));
}

}  // namespace
}  // namespace lockstep::launch
