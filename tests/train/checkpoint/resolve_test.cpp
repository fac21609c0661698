#include "train/checkpoint/resolve.h"

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
using testing::ThrowsMessage;

/// A run with checkpoints of steps 1 and 2.
class ResolveCheckpoint : public testing::Test {
 protected:
  ResolveCheckpoint() {
    for (const int64_t step : {1, 2}) {
      const fs::path folder = store_.begin(step);
      store_.commit(step, {write_sealed(folder, "model", {bytes_of("weights")})}, 9);
    }
  }

  test::TemporaryFolder run_;
  CheckpointStore store_{run_ / "checkpoints"};
  fs::path newest_ = run_ / "checkpoints/step_00000002";
};

TEST_F(ResolveCheckpoint, TakesARunItsCheckpointsOrOneOfThem) {
  EXPECT_EQ(resolve_checkpoint(run_.path()), newest_);
  EXPECT_EQ(resolve_checkpoint(run_ / "checkpoints"), newest_);
  EXPECT_EQ(resolve_checkpoint(run_.path().string() + "/checkpoints/"), newest_);
  EXPECT_EQ(resolve_checkpoint(newest_), newest_);
  EXPECT_EQ(resolve_checkpoint(run_ / "checkpoints/step_00000001"), run_ / "checkpoints/step_00000001");
}

TEST_F(ResolveCheckpoint, TakesOneThatWasCopiedUnderAnotherName) {
  fs::copy(newest_, run_ / "best");
  EXPECT_EQ(resolve_checkpoint(run_ / "best"), run_ / "best");
}

TEST_F(ResolveCheckpoint, TakesTheNewestThatIsWhole) {
  fs::remove(newest_ / "model");
  EXPECT_EQ(resolve_checkpoint(run_.path()), run_ / "checkpoints/step_00000001");
}

TEST_F(ResolveCheckpoint, DoesNotTakeAnotherForTheOneThatWasNamed) {
  fs::remove(newest_ / "manifest.json");
  EXPECT_THAT([&] { resolve_checkpoint(newest_); },
              ThrowsMessage<Error>(HasSubstr("manifest.json is missing")));
  EXPECT_THAT([&] { resolve_checkpoint(newest_.string() + "/"); },
              ThrowsMessage<Error>(HasSubstr("manifest.json is missing")));
}

TEST_F(ResolveCheckpoint, TellsWhyEachIsNotTaken) {
  test::write_file(newest_ / "model", "");
  fs::remove(run_ / "checkpoints/step_00000001/manifest.json");
  EXPECT_THAT([&] { resolve_checkpoint(run_.path()); },
              ThrowsMessage<Error>(AllOf(HasSubstr("holds no whole checkpoint"),
                                         HasSubstr("step_00000002: model has 0 bytes, shorter"),
                                         HasSubstr("step_00000001: manifest.json is missing"))));
}

TEST_F(ResolveCheckpoint, NamesWhatWasFoundInstead) {
  EXPECT_THAT(
      [&] { resolve_checkpoint(run_ / "none"); },
      ThrowsMessage<UsageError>(HasSubstr("none: there is no such folder; hint: name a run's folder")));
  EXPECT_THAT([&] { resolve_checkpoint(newest_ / "model"); },
              ThrowsMessage<UsageError>(HasSubstr("model: is no folder; hint:")));
  EXPECT_THAT([&] { resolve_checkpoint(run_ / "step_00000007"); },
              ThrowsMessage<UsageError>(HasSubstr("there is no such folder")));
  fs::create_directory(run_ / "other");
  EXPECT_THAT([&] { resolve_checkpoint(run_ / "other"); },
              ThrowsMessage<UsageError>(HasSubstr("other: holds no checkpoint, found nothing; hint:")));
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) test::write_file(run_ / "other" / name, "");
  EXPECT_THAT([&] { resolve_checkpoint(run_ / "other"); },
              ThrowsMessage<UsageError>(HasSubstr("found \"a\", \"b\", \"c\", \"d\", \"e\" and 2 more")));
}

}  // namespace
}  // namespace lockstep::train
