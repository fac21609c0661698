#include "train/checkpoint/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/error.h"
#include "support/child.h"
#include "support/temporary_folder.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/samples.h"
#include "train/run/settings.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

class Store : public testing::Test {
 protected:
  /// Commits a checkpoint whose one file says `text`.
  fs::path save(int64_t step, const std::string& text = "weights", int64_t keep = 100) {
    const fs::path folder = store_.begin(step);
    return store_.commit(step, {write_sealed(folder, "model", {bytes_of(text)})}, keep);
  }

  std::vector<std::string> names() {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      found.push_back(entry.path().filename().string());
    return found;
  }

  int64_t newest(int64_t at_most = kMostSteps) {
    const auto found = store_.find(at_most);
    return found.checkpoint ? found.checkpoint->step : -1;
  }

  test::TemporaryFolder parent_;
  fs::path folder_ = parent_ / "run/checkpoints";
  CheckpointStore store_{folder_};
};

TEST(CheckpointName, ReadsBack) {
  EXPECT_EQ(checkpoint_name(200), "step_00000200");
  for (const int64_t step :
       {int64_t{0}, int64_t{200}, int64_t{99'999'999}, int64_t{100'000'000}, kMostSteps}) {
    EXPECT_EQ(step_of_name(checkpoint_name(step)), step);
  }
  for (const char* name :
       {"", "step_", "step_200", "step_000000200", "step_0000020x", "step_-0000200", "LATEST",
        "step_1000000000000", ".step_00000200", "step_00000200.tmp", "step_+0000200"}) {
    EXPECT_EQ(step_of_name(name), std::nullopt) << name;
  }
}

TEST_F(Store, TouchesNothingBeforeItBegins) {
  EXPECT_THAT(store_.steps(), IsEmpty());
  EXPECT_EQ(newest(), -1);
  store_.remove_leftovers();
  store_.abandon(3);
  EXPECT_TRUE(fs::is_empty(parent_.path()));
}

TEST_F(Store, FindsWhatWasCommitted) {
  const fs::path folder = save(200, "some weights");
  EXPECT_EQ(folder, folder_ / "step_00000200");
  EXPECT_EQ(test::read_file(folder / "model"), "some weights");
  EXPECT_THAT(names(), UnorderedElementsAre("step_00000200", "LATEST"));
  EXPECT_EQ(test::read_file(folder_ / "LATEST"), "step_00000200\n");
  const auto found = store_.find();
  ASSERT_TRUE(found.checkpoint);
  EXPECT_EQ(found.checkpoint->folder, folder);
  EXPECT_EQ(found.checkpoint->step, 200);
  EXPECT_THAT(found.refused, IsEmpty());
}

TEST_F(Store, FindsTheNewestAtOrBelowAStep) {
  for (const int64_t step : {5, 100'000'000, 10, 20}) save(step);
  EXPECT_THAT(store_.steps(), ElementsAre(5, 10, 20, 100'000'000));
  EXPECT_EQ(newest(), 100'000'000);
  EXPECT_EQ(newest(20), 20);
  EXPECT_EQ(newest(19), 10);
  EXPECT_EQ(newest(4), -1);
}

TEST_F(Store, FallsBackToOneThatIsWholeAndSaysWhy) {
  for (const int64_t step : {1, 2, 3}) save(step);
  test::write_file(folder_ / "step_00000003/model", "Weights");
  fs::remove(folder_ / "step_00000002/manifest.json");
  const auto found = store_.find();
  ASSERT_TRUE(found.checkpoint);
  EXPECT_EQ(found.checkpoint->step, 1);
  EXPECT_THAT(found.refused, ElementsAre(HasSubstr("step_00000003: model has the hash"),
                                         HasSubstr("step_00000002: manifest.json is missing")));
  test::write_file(folder_ / "step_00000001/model", "");
  EXPECT_FALSE(store_.find().checkpoint);
  EXPECT_EQ(store_.find().refused.size(), 3U);
}

TEST_F(Store, DoesNotTrustLatest) {
  save(1);
  test::write_file(folder_ / "LATEST", "step_00000009\n");
  EXPECT_EQ(newest(), 1);
}

TEST_F(Store, DoesNotFindWhatWasNotCommitted) {
  save(1);
  write_sealed(store_.begin(2), "model", {bytes_of("weights")});
  EXPECT_EQ(newest(), 1);
  EXPECT_THAT(store_.steps(), ElementsAre(1));
  store_.abandon(2);
  EXPECT_THAT(names(), UnorderedElementsAre("step_00000001", "LATEST"));
}

TEST_F(Store, BeginsAnewWithAnEmptyFolder) {
  write_sealed(store_.begin(2), "rubbish", {});
  EXPECT_TRUE(fs::is_empty(store_.begin(2)));
  save(2);
  EXPECT_EQ(newest(), 2);
}

TEST_F(Store, KeepsTheNewest) {
  for (int64_t step = 1; step <= 5; ++step) save(step, "weights", 2);
  EXPECT_THAT(store_.steps(), ElementsAre(4, 5));
  save(6, "weights", 1);
  EXPECT_THAT(store_.steps(), ElementsAre(6));
}

TEST_F(Store, DoesNotCountBrokenOnesAsKept) {
  for (const int64_t step : {1, 2, 3}) save(step);
  fs::remove(folder_ / "step_00000003/model");
  save(4, "weights", 2);
  EXPECT_THAT(store_.steps(), ElementsAre(2, 4));
}

// After a resume at an earlier step the later ones are not thrown away by the first commit.
TEST_F(Store, LeavesThoseOfLaterStepsAlone) {
  for (const int64_t step : {10, 20, 30}) save(step);
  save(15, "weights", 1);
  EXPECT_THAT(store_.steps(), ElementsAre(15, 20, 30));
}

TEST_F(Store, ReplacesOneOfTheSameStep) {
  save(1);
  save(2, "old");
  save(2, "new");
  EXPECT_EQ(test::read_file(folder_ / "step_00000002/model"), "new");
  EXPECT_THAT(names(), UnorderedElementsAre("step_00000001", "step_00000002", "LATEST"));
  EXPECT_EQ(newest(), 2);
}

TEST_F(Store, ReplacesABrokenOneOfTheSameStep) {
  save(2, "old");
  fs::remove(folder_ / "step_00000002/manifest.json");
  save(2, "new");
  EXPECT_EQ(newest(), 2);
}

// Where names cannot be exchanged, a run may die between the two renames.
TEST_F(Store, FindsAndPutsBackOneThatWasSetAside) {
  save(1);
  save(2);
  fs::rename(folder_ / "step_00000002", folder_ / ".step_00000002.old");
  EXPECT_THAT(store_.steps(), ElementsAre(1, 2));
  EXPECT_EQ(newest(), 2);
  store_.remove_leftovers();
  EXPECT_THAT(names(), UnorderedElementsAre("step_00000001", "step_00000002", "LATEST"));
  EXPECT_EQ(newest(), 2);
}

TEST_F(Store, RemovesLeftoversAndNothingElse) {
  save(1);
  for (const char* name :
       {".step_00000001.old", ".step_00000002.tmp", ".step_00000003.gone", ".mine", "notes"}) {
    fs::create_directories(folder_ / name / "below");
  }
  test::write_file(folder_ / ".LATEST.tmp", "step");
  store_.remove_leftovers();
  EXPECT_THAT(names(), UnorderedElementsAre("step_00000001", "LATEST", ".mine", "notes"));
}

TEST_F(Store, RefusesSealsThatDoNotFitTheFiles) {
  const fs::path folder = store_.begin(1);
  const Seal model = write_sealed(folder, "model", {bytes_of("weights")});
  const auto refuses = [&](const std::vector<Seal>& seals, const std::string& text) {
    EXPECT_THAT([&] { store_.commit(1, seals, 1); }, ThrowsMessage<UsageError>(HasSubstr(text)));
  };
  refuses({}, "model has no seal");
  refuses({model, {"state", 0, 0}}, "state is missing");
  refuses({{"model", 8, model.xxh3}}, "model has 7 bytes, its seal says 8");
  EXPECT_THAT(store_.steps(), IsEmpty());
  store_.commit(1, {model}, 1);
  EXPECT_EQ(newest(), 1);
}

TEST_F(Store, RefusesNumbersOutOfRange) {
  EXPECT_THAT([&] { store_.begin(-1); }, ThrowsMessage<UsageError>(HasSubstr("step -1")));
  EXPECT_THAT([&] { store_.begin(kMostSteps + 1); },
              ThrowsMessage<UsageError>(HasSubstr("is not between 0")));
  store_.begin(1);
  EXPECT_THAT([&] { store_.commit(1, {}, 0); }, ThrowsMessage<UsageError>(HasSubstr("keep 0")));
}

TEST_F(Store, NamesTheFolderThatCannotBeMade) {
  test::write_file(parent_ / "run", "a file");
  EXPECT_THAT([&] { store_.begin(1); },
              ThrowsMessage<Error>(
                  testing::AllOf(HasSubstr((parent_ / "run").string()), HasSubstr("ot a directory"))));
}

TEST_F(Store, DoesNotTakeAFileForAFolderWithoutCheckpoints) {
  test::write_file(parent_ / "file", "");
  const CheckpointStore store(parent_ / "file");
  EXPECT_THAT([&] { store.find(); }, ThrowsMessage<Error>(HasSubstr("Not a directory")));
}

size_t open_descriptors() {
  const fs::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

TEST_F(Store, LeavesNoDescriptorOpen) {
  const auto work = [&] {
    save(1);
    verify_checkpoint(store_.folder_of(1));
    sync_folder(folder_);
    make_folders(parent_ / "a/b");
    fs::remove_all(parent_ / "a");
    store_.find();
    fs::resize_file(store_.folder_of(1) / "model", 1);
    EXPECT_THROW(verify_checkpoint(store_.folder_of(1)), Error);
    store_.remove_leftovers();
  };
  work();
  const size_t before = open_descriptors();
  for (int i = 0; i < 3; ++i) work();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Store, ReportsThatTheOneWhichLatestNamesIsMissing) {
  save(1);
  save(2);
  fs::remove_all(store_.folder_of(2));
  EXPECT_EQ(newest(), 1);
  EXPECT_THAT(store_.find().refused, ElementsAre(HasSubstr("step_00000002: is missing")));
  EXPECT_THAT(store_.find(1).refused, IsEmpty());
}

// In a folder that others may write: a link or device keeps its place.
TEST_F(Store, RenamesOverNothingButAPlainFile) {
  save(1);
  test::write_file(parent_ / "precious", "precious");
  fs::remove(folder_ / "LATEST");
  fs::create_symlink(parent_ / "precious", folder_ / "LATEST");
  EXPECT_THAT([&] { save(2); },
              ThrowsMessage<Error>(HasSubstr("LATEST: something that is not a regular file")));
  EXPECT_TRUE(fs::is_symlink(folder_ / "LATEST"));
  fs::remove(folder_ / "LATEST");
  ASSERT_EQ(mkfifo((folder_ / "LATEST").c_str(), 0600), 0);
  EXPECT_THROW(save(2), Error);
  EXPECT_TRUE(fs::is_fifo(folder_ / "LATEST"));
  EXPECT_EQ(test::read_file(parent_ / "precious"), "precious");
  EXPECT_EQ(newest(), 2);
}

/// What a run writes, but for `changes`.
std::string state_with(const nlohmann::json& changes) {
  nlohmann::json state = {{"format", 1}, {"step", 40}, {"loss", 2.5}, {"samples", 40 * 64}};
  state["settings"] = nlohmann::json::parse(to_json(TrainSettings()));
  state["settings"]["steps"] = 100;
  state.merge_patch(changes);
  return state.dump();
}

// Hashes are no proof: whoever forges a value computes its hash.
TEST_F(Store, TakesNoImpossibleValueForWholeWhateverItsHash) {
  const auto save_state = [&](int64_t step, const nlohmann::json& changes) {
    const fs::path folder = store_.begin(step);
    store_.commit(step, {write_sealed(folder, "state.json", {bytes_of(state_with(changes))})}, 100);
    return [path = store_.folder_of(step)] { verify_checkpoint(path); };
  };
  EXPECT_NO_THROW(save_state(40, nlohmann::json::object())());
  const std::vector<std::pair<nlohmann::json, std::string>> forged = {
      {{{"step", 4000000000}}, "state.json is of step 4000000000, manifest.json of step 40"},
      {{{"step", -40}}, "is of step -40"},
      {{{"step", 40.5}}, "is of step 40.5"},
      {{{"step", "40"}}, "is of step \"40\""},
      {{{"step", nullptr}}, "is of step (none)"},
      {{{"samples", 41}}, "has 41 samples, 40 steps of 64 have 2560"},
      {{{"settings", {{"steps", 39}}}}, "is of step 40, its run has 39"},
      {{{"settings", {{"batch", -64}}}}, "batch is -64"},
      {{{"settings", {{"lr", "fast"}}}}, "lr is \"fast\""},
      {{{"settings", {{"seed", nullptr}}}}, "seed is missing"},
  };
  for (const auto& [changes, said] : forged) {
    EXPECT_THAT(save_state(40, changes), ThrowsMessage<Error>(HasSubstr(said)));
    EXPECT_EQ(newest(), -1) << said;
  }
  const int64_t far = 4'000'000'000;
  EXPECT_THAT(save_state(far, {{"step", far}, {"samples", far * 64}}),
              ThrowsMessage<Error>(HasSubstr("is of step 4000000000, its run has 100")));
  EXPECT_THAT(save_state(far, {{"step", far}, {"samples", far * 64}, {"settings", {{"steps", 0}}}}),
              ThrowsMessage<Error>(HasSubstr("is of step 4000000000, its run has 1000000000")));
}

}  // namespace
}  // namespace lockstep::train
