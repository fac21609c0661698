#include "lockstep/trace/json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/error.h"
#include "support/refusal.h"
#include "trace/samples.h"

namespace lockstep::trace {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

TEST(TraceJson, IsAsDocumented) {
  EXPECT_EQ(to_json({}), "{\"lockstep_trace\": 1,\n\"ranks\": [\n],\n\"spans\": [\n]}\n");
  const json document = json::parse(to_json(sample()));
  const json rank = {{"rank", 1},
                     {"host", "node-a"},
                     {"job", "job-7"},
                     {"clock_offset_ns", -500},
                     {"monotonic_ns", 1000},
                     {"wall_ns", 1'700'000'000'000'000'000},
                     {"dropped", 12}};
  const json span = {{"rank", 0},
                     {"stream", "communication"},
                     {"name", "send 1 slot 1"},
                     {"begin_ns", 5000},
                     {"end_ns", 7000},
                     {"bytes", 4096},
                     {"peer", 1},
                     {"call", 812}};
  const json user = {
      {"rank", 1}, {"stream", "user"}, {"name", "optimizer"}, {"begin_ns", 5600}, {"end_ns", 6600}};
  EXPECT_EQ(document["lockstep_trace"], 1);
  EXPECT_EQ(document["ranks"][1], rank);
  EXPECT_EQ(document["spans"][1], span);
  EXPECT_EQ(document["spans"][3], user);
}

TEST(TraceJson, ReadsBackToTheSameTrace) {
  EXPECT_EQ(parse_json(to_json({})), Trace{});
  EXPECT_EQ(parse_json(to_json(sample())), sample());
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Trace trace = any_trace(seed);
    ASSERT_EQ(parse_json(to_json(trace)), trace) << "seed " << seed;
  }
}

TEST(TraceJson, ShowsWhatIsNoTextAsReplacement) {
  const Trace trace{.ranks = {{}},
                    .spans = {{.name = "a\xff"
                                       "b"}}};
  EXPECT_EQ(parse_json(to_json(trace)).spans.at(0).name,
            "a\xef\xbf\xbd"
            "b");
}

TEST(TraceJson, MayComeInAnyOrderAndWithFieldsOfLaterVersions) {
  json document = json::parse(to_json(sample()));  // Its keys are sorted: the version comes first.
  document["zeta"] = {{"spans", {{"deep", 1}}}};
  document["spans"][0]["extra"] = {1, {{"a", 2}}};
  document["ranks"][0]["extra"] = nullptr;
  std::ranges::reverse(document["spans"]);
  EXPECT_EQ(parse_json(document.dump()).spans, sample().spans);
  const std::string turned =
      R"({"spans": [{"rank": 0, "stream": "user", "name": "", "begin_ns": 0, "end_ns": 0}],
    "ranks": [{"rank": 0, "host": "", "job": "", "clock_offset_ns": 0, "monotonic_ns": 0, "wall_ns": 0,
    "dropped": 0}], "lockstep_trace": 1})";
  EXPECT_EQ(parse_json(turned), (Trace{.ranks = {{}}, .spans = {{}}}));
}

std::string refusal(std::string_view text) {
  return test::refusal_of([&] { parse_json(text); });
}

TEST(TraceJson, IsRefusedByPlaceAndValue) {
  const json good = json::parse(to_json(sample()));
  const auto with = [&](const std::string& pointer, const json& value) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    return refusal(bad.dump());
  };
  EXPECT_EQ(with("/lockstep_trace", 2), "trace json /lockstep_trace: version 2 instead of 1");
  EXPECT_EQ(with("/lockstep_trace", "1\n"), R"(trace json /lockstep_trace: version "1\n" instead of 1)");
  EXPECT_EQ(with("/lockstep_trace", {1}), "trace json /lockstep_trace: version [1] instead of 1");
  EXPECT_EQ(with("/ranks", 7), "trace json /ranks: is no array");
  EXPECT_EQ(with("/ranks/1", 7), "trace json /ranks/1: 7 is no object");
  EXPECT_EQ(with("/ranks/1/rank", 0), "trace json /ranks/1/rank: is there twice");
  EXPECT_EQ(with("/ranks/1/rank", 5), "trace json /spans/3/rank: 1 is not among the ranks");
  EXPECT_EQ(with("/ranks/0/host", json()), "trace json /ranks/0/host: null is no text");
  EXPECT_THAT(with("/ranks/0/dropped", -1),
              StartsWith("trace json /ranks/0/dropped: -1 is not between 0 and"));
  EXPECT_EQ(with("/spans", 7), "trace json /spans: is no array");
  EXPECT_EQ(with("/spans", {{"a", 1}}), "trace json /spans: is no array");
  EXPECT_EQ(with("/spans/2", 7), "trace json /spans/2: 7 is no object");
  EXPECT_EQ(with("/spans/2", json::array({1})), "trace json /spans/2: [1] is no object");
  EXPECT_EQ(with("/spans/2", json::object()), "trace json /spans/2: 'name' is missing");
  EXPECT_EQ(with("/spans/2/name", 5), "trace json /spans/2/name: 5 is no text");
  EXPECT_EQ(
      with("/spans/2/stream", "gpu\x7f"),
      R"(trace json /spans/2/stream: "gpu\u007f" is unknown; hint: compute, communication, progress or user)");
  EXPECT_EQ(with("/spans/2/begin_ns", 1.5), "trace json /spans/2/begin_ns: 1.5 is no whole number");
  EXPECT_EQ(with("/spans/2/begin_ns", "1"), R"(trace json /spans/2/begin_ns: "1" is no whole number)");
  EXPECT_EQ(with("/spans/2/begin_ns", 18446744073709551615U),
            "trace json /spans/2/begin_ns: 18446744073709551615 is not between -1152921504606846976 and "
            "1152921504606846976");
  EXPECT_EQ(with("/spans/2/end_ns", 5099), "trace json /spans/2/end_ns: 5099 is before begin_ns 5100");
  EXPECT_THAT(with("/spans/2/bytes", -4), StartsWith("trace json /spans/2/bytes: -4 is not between 0 and"));
  EXPECT_EQ(with("/spans/2/peer", 4294967296),
            "trace json /spans/2/peer: 4294967296 is not between -1 and 2147483647");
  EXPECT_THAT(with("/spans/2/call", -2), StartsWith("trace json /spans/2/call: -2 is not between -1 and"));
}

TEST(TraceJson, NeedsEveryFieldButThree) {
  const json good = json::parse(to_json(sample()));
  for (const std::string place : {"", "/ranks/0", "/spans/1"}) {
    for (const auto& [key, value] : good[json::json_pointer(place)].items()) {
      json bad = good;
      bad[json::json_pointer(place)].erase(key);
      const bool may_be_absent = key == "bytes" || key == "peer" || key == "call";
      const std::string expected =
          "trace json " + (place.empty() ? "/" : place) + ": '" + key + "' is missing";
      EXPECT_EQ(refusal(bad.dump()), may_be_absent ? "accepted" : expected);
    }
  }
}

TEST(TraceJson, IsRefusedIfItIsNoJsonAtAll) {
  EXPECT_EQ(refusal(""), "trace json line 1: no valid JSON from here on");
  EXPECT_EQ(refusal("{\n\n]"), "trace json line 3: no valid JSON from here on");
  EXPECT_EQ(refusal("{\"a\": \"\xff\"}"), "trace json line 1: no valid JSON from here on");
  EXPECT_EQ(refusal("{\"spans\": [1e999]}"), "trace json: a number is out of range");
  EXPECT_EQ(refusal("[]"), "trace json /: is no object");
  EXPECT_EQ(refusal("7"), "trace json /: 7 is no object");
  EXPECT_EQ(refusal(std::string(1 << 20, '[')), "trace json /: is no object");
  EXPECT_EQ(refusal(fmt::format("{{\"spans\": {:[>1000000}", "")),
            "trace json line 1: no valid JSON from here on");
  const std::string long_name(1 << 20, 'x');
  EXPECT_LT(refusal(json{{"lockstep_trace", long_name}}.dump()).size(), 200U);
  const std::string truncated = to_json(sample());
  for (size_t size = 0; size + 2 < truncated.size(); ++size) {
    ASSERT_THAT(refusal(truncated.substr(0, size)), HasSubstr("no valid JSON from here on"));
  }
}

}  // namespace
}  // namespace lockstep::trace
