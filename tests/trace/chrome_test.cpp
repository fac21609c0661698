#include "lockstep/trace/chrome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trace/samples.h"

namespace lockstep::trace {
namespace {

using nlohmann::json;

std::vector<json> events(const json& document, const std::string& phase) {
  std::vector<json> result;
  for (const json& event : document.at("traceEvents")) {
    if (event.at("ph") == phase) result.push_back(event);
  }
  return result;
}

TEST(ChromeTrace, HasTimesInMicrosecondsSinceTheFirstSpanOnTheCommonClock) {
  const json document = json::parse(to_chrome(sample()));
  EXPECT_EQ(document["displayTimeUnit"], "ns");
  EXPECT_EQ(document["otherData"]["origin_ns"], 5000);
  const auto spans = events(document, "X");
  ASSERT_EQ(spans.size(), 4U);
  const json collective = {{"ph", "X"},    {"name", "all_reduce ring"},
                           {"pid", 1},     {"cat", "communication"},
                           {"tid", 2},     {"ts", 0.0},
                           {"dur", 4.001}, {"args", {{"bytes", 8192}, {"call", 812}}}};
  EXPECT_EQ(spans[0], collective);
  EXPECT_EQ(spans[1]["args"], (json{{"bytes", 4096}, {"peer", 1}, {"call", 812}}));
  EXPECT_EQ(spans[3]["name"], "optimizer");
  EXPECT_EQ(spans[3]["pid"], 2);
  EXPECT_EQ(spans[3]["ts"], 0.1);  // 5600 on a clock that is 500 ahead.
  EXPECT_EQ(spans[3]["args"], json::object());
}

TEST(ChromeTrace, NamesRanksAndStreamsAndTellsWhatWasDropped) {
  const auto metadata = events(json::parse(to_chrome(sample())), "M");
  std::set<std::string> texts;
  for (const json& event : metadata) {
    const std::string tid = event.contains("tid") ? " tid " + event["tid"].dump() : "";
    texts.insert(event["name"].get<std::string>() + " pid " + event["pid"].dump() + tid + " " +
                 event["args"].begin()->dump());
  }
  EXPECT_THAT(texts,
              testing::IsSupersetOf(
                  {R"(process_name pid 1 "rank 0 on node-a")", R"(process_name pid 2 "rank 1 on node-a")",
                   R"(process_labels pid 2 "12 older spans were dropped")",
                   R"(thread_name pid 1 tid 2 "communication")",
                   R"(thread_name pid 1 tid 6 "communication 2")", R"(thread_name pid 2 tid 4 "user")"}));
}

TEST(ChromeTrace, SpansThatFollowEachOtherShareAThread) {
  Trace trace{.ranks = {{.rank = 0}}};
  for (const int64_t begin : {0, 10, 20}) trace.spans.push_back({.begin_ns = begin, .end_ns = begin + 10});
  std::set<int> threads;
  for (const json& span : events(json::parse(to_chrome(trace)), "X")) threads.insert(span["tid"].get<int>());
  EXPECT_EQ(threads.size(), 1U) << "each begins when the one before ends";
}

TEST(ChromeTrace, OfNothingIsStillATrace) {
  const json document = json::parse(to_chrome({}));
  EXPECT_EQ(document["traceEvents"], json::array());
}

TEST(ChromeTrace, KeepsNanosecondsOfALongRun) {
  constexpr int64_t kDay = 86'400'000'000'000;
  const Trace trace{.ranks = {{}},
                    .spans = {{.begin_ns = 1}, {.begin_ns = 9 * kDay + 2, .end_ns = 9 * kDay + 5}}};
  EXPECT_THAT(to_chrome(trace), testing::HasSubstr(R"("ts": 777600000000.001, "dur": 0.003)"));
}

TEST(ChromeTrace, HasNoNegativeTimesAtTheBounds) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    for (const json& event : events(json::parse(to_chrome(any_trace(seed))), "X")) {
      ASSERT_GE(event["ts"], 0.0);
      ASSERT_GE(event["dur"], 0.0);
    }
  }
}

// Whatever the spans: each event has the keys that viewers need, and on every thread events nest.
TEST(ChromeTrace, NestsOnEveryThread) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Trace trace = any_trace(seed);
    for (Span& span : trace.spans) {  // Within what a double holds exactly.
      span.begin_ns = std::clamp<int64_t>(span.begin_ns, -5000, 5000);
      span.end_ns = std::clamp<int64_t>(span.end_ns, span.begin_ns, 5000);
    }
    for (RankRecord& rank : trace.ranks)
      rank.clock_offset_ns = std::clamp<int64_t>(rank.clock_offset_ns, -9, 9);
    sort(trace);
    const json document = json::parse(to_chrome(trace));
    std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int64_t>>> threads;
    const auto spans = events(document, "X");
    ASSERT_EQ(spans.size(), trace.spans.size());
    for (const json& event : spans) {
      for (const char* key : {"name", "cat", "pid", "tid", "ts", "dur", "args"})
        ASSERT_TRUE(event.contains(key));
      ASSERT_GE(event["pid"], 1);
      ASSERT_GE(event["tid"], 1);
      ASSERT_GE(event["ts"], 0.0);
      ASSERT_GE(event["dur"], 0.0);
      const int64_t begin = std::llround(event["ts"].get<double>() * 1000);
      const int64_t end = begin + std::llround(event["dur"].get<double>() * 1000);
      auto& on_thread = threads[{event["pid"].get<int>(), event["tid"].get<int>()}];
      for (const auto& [other_begin, other_end] : on_thread) {
        const bool after = begin >= other_end;
        const bool inside = begin >= other_begin && end <= other_end;
        ASSERT_TRUE(after || inside) << "seed " << seed;
      }
      on_thread.emplace_back(begin, end);
    }
  }
}

}  // namespace
}  // namespace lockstep::trace
