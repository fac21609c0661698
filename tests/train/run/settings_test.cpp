#include "train/run/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/error.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(TrainSettings, ComeBackFromTheirOwnText) {
  TrainSettings settings;
  settings.data = "a \"quoted\" folder";
  settings.steps = 77;
  settings.lr = 0.1 + 0.2;
  EXPECT_EQ(parse_settings(to_json(settings), "run.json"), settings);
}

TEST(TrainSettings, AreRefusedByKeyAndValueUnlessWhole) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = to_json(TrainSettings());
    text.replace(text.find(from), from.size(), to);
    return [text] { parse_settings(text, "run.json"); };
  };
  EXPECT_THAT(with("\"batch\": 64", "\"batch\": 0"),
              ThrowsMessage<UsageError>(HasSubstr("run.json: batch is 0")));
  EXPECT_THAT(with("\"batch\": 64", "\"batch\": \"x\""),
              ThrowsMessage<UsageError>(HasSubstr("batch is \"x\"")));
  EXPECT_THAT(with("\"batch\": 64", "\"bach\": 64"),
              ThrowsMessage<UsageError>(HasSubstr("batch is missing")));
  EXPECT_THAT(with("\"batch\": 64", "\"batch\": 64, \"more\": 1"),
              ThrowsMessage<UsageError>(HasSubstr("more is not known")));
  EXPECT_THAT(with("\"ddp\"", "\"tensor\""), ThrowsMessage<UsageError>(HasSubstr("parallel is \"tensor\"")));
  EXPECT_THAT([] { parse_settings("{", "run.json"); }, ThrowsMessage<UsageError>(HasSubstr("run.json: ")));
}

GivenSettings given(const std::string& name, const std::function<void(TrainSettings&)>& set) {
  GivenSettings all;
  set(all.values);
  all.names.insert(name);
  return all;
}

TEST(TrainSettings, OfARunThatGoesOnAreItsOwnButForWhatMayChange) {
  TrainSettings stored;
  stored.steps = 100;
  stored.seed = 5;
  EXPECT_EQ(settle(GivenSettings(), stored), stored);
  const auto longer = settle(given("steps", [](auto& all) { all.steps = 200; }), stored);
  EXPECT_EQ(longer.steps, 200);
  EXPECT_EQ(longer.seed, 5);
  const auto by_epochs = settle(given("epochs", [](auto& all) { all.epochs = 3; }), stored);
  EXPECT_EQ(by_epochs.epochs, 3);
  EXPECT_EQ(by_epochs.steps, 0);
  EXPECT_THAT([&] { settle(given("seed", [](auto& all) { all.seed = 6; }), stored); },
              ThrowsMessage<UsageError>(HasSubstr("--seed 6: the run that goes on has 5")));
}

}  // namespace
}  // namespace lockstep::train
