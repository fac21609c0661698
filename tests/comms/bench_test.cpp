// `lockstep bench allreduce` and the like, as a user meets them: checked results, whatever the times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/child.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

TEST(BenchCollectives, EveryOneOfThemChecksItsResults) {
  for (const char* what : {"allreduce", "broadcast", "allgather", "reducescatter", "alltoall", "pingpong"}) {
    Child child(
        {LOCKSTEP_COMMAND, "bench", what, "--world", "2", "--rounds", "1", "--sizes", "4,100KB", "--json"});
    ASSERT_EQ(child.wait(), 0) << what << ": " << child.errors();
    const auto document = nlohmann::json::parse(child.output());
    ASSERT_EQ(document["rows"].size(), 2U) << what;
    for (const auto& row : document["rows"]) {
      EXPECT_EQ(row["wrong"], 0) << what;
      EXPECT_EQ(row["engine"], "shm");
      EXPECT_GT(row["time_us"], 0);
    }
  }
}

TEST(BenchCollectives, PeersAreMeasuredInTheSameRounds) {
  Child child({LOCKSTEP_COMMAND, "bench", "allreduce", "--engines", "shm,gloo", "--staged", "--rounds", "2",
               "--sizes", "1KiB"});
  ASSERT_EQ(child.wait(), 0) << child.errors();
  EXPECT_THAT(child.output(), HasSubstr("gloo    native"));
  EXPECT_THAT(child.output(), HasSubstr("1024 bytes: gloo takes "));
}

TEST(BenchCollectives, ABadEngineIsRefusedByName) {
  Child child({LOCKSTEP_COMMAND, "bench", "allreduce", "--engines", "smh"});
  EXPECT_NE(child.wait(), 0);
  EXPECT_THAT(child.errors(), HasSubstr("smh"));
}

}  // namespace
}  // namespace lockstep::test
