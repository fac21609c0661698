#include "cli/nearest.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("run", "run"), 0);
  EXPECT_EQ(edit_distance("rnu", "run"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, FindsTheLikelyWord) {
  EXPECT_EQ(nearest("docter", {"run", "doctor", "train"}), "doctor");
  EXPECT_EQ(nearest("tran", {"run", "doctor", "train"}), "train");
  EXPECT_EQ(nearest("--nproc-per-nod", {"--nnodes", "--nproc-per-node"}), "--nproc-per-node");
}

TEST(Nearest, OffersNothingWhenNothingIsClose) {
  EXPECT_EQ(nearest("zebra", {"run", "doctor"}), "");
}

}  // namespace
}  // namespace lockstep::cli
