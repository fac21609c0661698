#include "lockstep/plan/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/error.h"
#include "lockstep/plan/all_reduce.h"
#include "lockstep/plan/text.h"
#include "plan/shapes.h"
#include "support/refusal.h"

namespace lockstep::plan {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class PlanJson : public testing::TestWithParam<Algorithm> {};

TEST_P(PlanJson, ReadsBackToTheSameSteps) {
  for (int world = 1; world <= 16; ++world) {
    const auto plans = plans_of(GetParam(), world);
    for (const Plan& plan : {plans.front(), plans[plans.size() / 2], plans.back()}) {
      const Plan back = plan_from_json(to_json(plan));
      ASSERT_EQ(to_string(back), to_string(plan));
      for (int rank = 0; rank < world; ++rank) ASSERT_EQ(back.steps(rank), plan.steps(rank));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanJson, testing::ValuesIn(algorithms()),
                         [](const auto& test) { return test_name(test.param); });

TEST(PlanJsonForm, HasWhatAPageNeedsToAnimateAStep) {
  const auto ring = json::parse(to_json(ring_all_reduce(4)));
  EXPECT_EQ(ring["collective"], "all_reduce");
  EXPECT_EQ(ring["order"], "position");
  const json expected = {
      {"round", 0}, {"kind", "recv_reduce"},         {"peer", 3}, {"slot", 2}, {"slots", 1},
      {"chunk", 2}, {"text", "recv_reduce 3 slot 2"}};
  EXPECT_EQ(ring["ranks"][0][1], expected);
}

std::string refusal(const json& document) {
  return test::refusal_of([&] { plan_from_json(document.dump()); });
}

TEST(PlanJsonForm, RefusesByPlaceAndReason) {
  const auto good = json::parse(to_json(push_all_reduce(2)));
  ASSERT_EQ(refusal(good), "accepted");
  const auto with = [&](const std::string& pointer, const json& value) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    return refusal(bad);
  };
  EXPECT_EQ(test::refusal_of([] { plan_from_json("{\n\"world\": 2,\n]"); }),
            "plan json line 3: not valid JSON from here on");
  EXPECT_EQ(test::refusal_of([] { plan_from_json(""); }), "plan json line 1: not valid JSON from here on");
  EXPECT_EQ(refusal(json::array()), "plan json /: is no object");
  EXPECT_EQ(refusal(json::object()), "plan json /: 'collective' is missing");
  EXPECT_THAT(with("/collective", "sum"),
              StartsWith("plan json /collective: 'sum' is unknown; hint: one of"));
  EXPECT_EQ(with("/algorithm", "a b\n"), "plan json /algorithm: 'a b?' is no algorithm's name");
  EXPECT_EQ(with("/world", 0), "plan json /world: 0 is not between 1 and 32768");
  EXPECT_EQ(with("/world", 2.5), "plan json /world: is no whole number");
  EXPECT_EQ(with("/world", "2"), "plan json /world: is no whole number");
  EXPECT_EQ(with("/world", 18446744073709551615U),
            "plan json /world: 18446744073709551615 is not between 1 and 32768");
  EXPECT_EQ(with("/world", 3), "plan json /ranks: 2 ranks instead of 3");
  EXPECT_EQ(with("/root", 2), "plan json /root: 2 is not between 0 and 1");
  EXPECT_EQ(with("/ranks", 7), "plan json /ranks: is no array");
  EXPECT_EQ(with("/ranks/1", nullptr), "plan json /ranks/1: is no array");
  EXPECT_EQ(with("/ranks/1/0", "post"), "plan json /ranks/1/0: is no object");
  EXPECT_EQ(with("/ranks/1/0/kind", 3), "plan json /ranks/1/0/kind: is no text");
  EXPECT_EQ(with("/ranks/1/0/round", -1), "plan json /ranks/1/0/round: -1 is not between 0 and 1000000000");
  EXPECT_EQ(with("/ranks/0/1/flag", json()), "plan json /ranks/0/1/flag: is no whole number");
  EXPECT_EQ(with("/ranks/0/1/flag", 5),
            "plan json /ranks/0/1/text: 'wait 1 flag 1' instead of 'wait 1 flag 5', as the other fields say");
  EXPECT_EQ(with("/ranks/0/2/sources", json::object()), "plan json /ranks/0/2/sources: 'rank' is missing");
  EXPECT_EQ(with("/ranks/0/2/sources/except", 0), "plan json /ranks/0/2/sources: 'except_slot' is missing");
  EXPECT_THAT(with("/slots", 1000000000), StartsWith("plan json /ranks: 2 ranks with 1000000000 slots"));
}

TEST(PlanJsonForm, IsRefusedAboveTheSizeOfTheTextForm) {
  EXPECT_THROW(to_json(ring_all_reduce(1000)), UsageError);
}

}  // namespace
}  // namespace lockstep::plan
