// What writers record, and what it costs them in allocations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <thread>

#include "lockstep/error.h"
#include "lockstep/trace/session.h"
#include "lockstep/trace/writer.h"

namespace {
thread_local int64_t allocations = 0;
}

// Not inlined: GCC would see free() called on what operator new gave, and warn.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace lockstep::trace {
namespace {

using testing::ElementsAre;

std::vector<std::string> names(const Trace& trace) {
  std::vector<std::string> result;
  for (const Span& span : trace.spans) result.push_back(span.name);
  return result;
}

const Name kOuter("all_reduce ring");
const Name kStep("send 1 slot 1");
const Name kUserName("optimizer");

TEST(Tracing, IsOffUntilStartedAndThenRecordsNothingAndAllocatesNothing) {
  EXPECT_FALSE(enabled());
  const int64_t before = allocations;
  for (int i = 0; i < 1000; ++i) {
    const Scope scope(kOuter, {.bytes = 8});
    record(kStep, 1, 2);
  }
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(collect(), Trace{});
  EXPECT_EQ(stop(), Trace{});
  start();
  EXPECT_TRUE(stop().spans.empty());
}

TEST(Tracing, AllocatesForTheFirstSpanOfAThreadAlone) {
  start({.most_spans_per_thread = 100});
  { const Scope scope(kOuter); }
  const int64_t before = allocations;
  for (int i = 0; i < 1000; ++i) {
    const Scope scope(kOuter, {.stream = Stream::kProgress, .bytes = 8});
    record(kStep, 1, 2);
  }
  EXPECT_EQ(allocations, before);
  stop();
}

TEST(Tracing, KeepsAllThatASpanSays) {
  start({.rank = 3, .job = "j"});
  record(kStep, 10, 25, {.stream = Stream::kCommunication, .bytes = 4096, .peer = 1, .call = 812});
  record(kUserName, 30, 30);
  const Trace trace = stop();
  const Span step{.name = "send 1 slot 1",
                  .rank = 3,
                  .stream = Stream::kCommunication,
                  .begin_ns = 10,
                  .end_ns = 25,
                  .bytes = 4096,
                  .peer = 1,
                  .call = 812};
  const Span user{.name = "optimizer", .rank = 3, .stream = Stream::kUser, .begin_ns = 30, .end_ns = 30};
  EXPECT_THAT(trace.spans, ElementsAre(step, user));
  ASSERT_EQ(trace.ranks.size(), 1U);
  EXPECT_EQ(trace.ranks[0].rank, 3);
  EXPECT_EQ(trace.ranks[0].job, "j");
  EXPECT_EQ(trace.ranks[0].dropped, 0);
  EXPECT_GT(trace.ranks[0].monotonic_ns, 0);
  EXPECT_GT(trace.ranks[0].wall_ns, trace.ranks[0].monotonic_ns);
}

TEST(Tracing, BringsWhatIsOutOfBoundsIntoThem) {
  start();
  record(kStep, 10, 5, {.stream = static_cast<Stream>(9), .bytes = -1, .peer = -7, .call = -9});
  const Span expected{.name = "send 1 slot 1", .begin_ns = 10, .end_ns = 10};
  EXPECT_THAT(stop().spans, ElementsAre(expected));
}

TEST(Tracing, PutsTheOuterSpanFirstAndTheInnerInOrder) {
  start();
  {
    const Scope outer(kOuter);
    { const Scope inner(kStep); }
    { const Scope inner(kUserName); }
  }
  const Trace trace = stop();
  ASSERT_THAT(names(trace), ElementsAre("all_reduce ring", "send 1 slot 1", "optimizer"));
  const auto& [outer, first, second] = std::tie(trace.spans[0], trace.spans[1], trace.spans[2]);
  EXPECT_LE(outer.begin_ns, first.begin_ns);
  EXPECT_LE(first.begin_ns, first.end_ns);
  EXPECT_LE(first.end_ns, second.begin_ns);
  EXPECT_LE(second.end_ns, outer.end_ns);
}

TEST(Tracing, PutsTheOuterSpanFirstEvenIfTheClockDidNotMove) {
  start();
  record(kStep, 5, 5);
  record(kOuter, 5, 5);  // A scope ends after what it contains.
  EXPECT_THAT(names(stop()), ElementsAre("all_reduce ring", "send 1 slot 1"));
}

TEST(Tracing, KeepsTheNewestAndCountsTheDropped) {
  for (const int64_t written : {1, 9, 10, 11, 12, 25, 1000}) {
    start({.most_spans_per_thread = 10});
    for (int64_t i = 0; i < written; ++i) record(kStep, i, i);
    const Trace trace = stop();
    const int64_t kept = std::min<int64_t>(written, 10);
    ASSERT_EQ(static_cast<int64_t>(trace.spans.size()), kept);
    EXPECT_EQ(trace.ranks.at(0).dropped, written - kept);
    for (int64_t i = 0; i < kept; ++i) {
      EXPECT_EQ(trace.spans[static_cast<size_t>(i)].begin_ns, written - kept + i);
    }
  }
}

TEST(Tracing, ForgetsTheSessionBefore) {
  start({.most_spans_per_thread = 2});
  for (int i = 0; i < 5; ++i) record(kStep, i, i);
  stop();
  record(kStep, 100, 100);
  start({.most_spans_per_thread = 4});
  record(kOuter, 7, 7);
  const Trace trace = stop();
  EXPECT_THAT(names(trace), ElementsAre("all_reduce ring"));
  EXPECT_EQ(trace.ranks.at(0).dropped, 0);
}

TEST(Tracing, LeavesOutScopesThatWereOpenAtStartOrStop) {
  {
    const Scope open_at_start(kOuter);
    start();
  }
  EXPECT_TRUE(collect().spans.empty());
  {
    const Scope open_at_stop(kOuter);
    EXPECT_TRUE(stop().spans.empty());
    start();
  }
  EXPECT_TRUE(stop().spans.empty());
}

TEST(Tracing, CollectsWithoutStopping) {
  start();
  record(kStep, 1, 2);
  EXPECT_EQ(collect().spans.size(), 1U);
  record(kStep, 3, 4);
  EXPECT_EQ(collect().spans.size(), 2U);
  EXPECT_EQ(stop().spans.size(), 2U);
}

TEST(Tracing, UsesAClockThatGoesForward) {
  int64_t last = now_ns();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = now_ns();
    ASSERT_LE(last, now);
    last = now;
  }
}

TEST(TraceName, IsTheSameForTheSameText) {
  EXPECT_EQ(Name("a"), Name("a"));
  EXPECT_NE(Name("a"), Name("b"));
  EXPECT_EQ(Name("send 1 slot 1"), kStep);
  EXPECT_EQ(Name("").text(), "");
  EXPECT_EQ(Name(std::string_view("a\0b", 3)).text(), std::string_view("a\0b", 3));
}

TEST(TraceNameDeathTest, TextsBeyondTheMostShareOneName) {
  const auto fill = [] {
    for (uint32_t i = 0; i < Name::kMostNames; ++i) static_cast<void>(Name(std::to_string(i)));
    const bool right = Name("5").text() == "5" && Name("late").text() == "(too many names)" &&
                       Name("later") == Name("late") && kStep.text() == "send 1 slot 1";
    std::_Exit(right ? 0 : 1);
  };
  EXPECT_EXIT(fill(), testing::ExitedWithCode(0), "");
}

TEST(TraceOptions, AreRefusedByNameAndValue) {
  const auto refusal = [](auto call) -> std::string {
    try {
      call();
      return "accepted";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal([] { start({.rank = -2}); }), "trace: rank -2 is negative");
  EXPECT_EQ(refusal([] { set_rank(-1); }), "trace: rank -1 is negative");
  EXPECT_EQ(refusal([] { start({.most_spans_per_thread = 0}); }),
            "trace: most_spans_per_thread 0 is not between 1 and 1073741824");
  EXPECT_EQ(refusal([] { set_clock_offset_ns(kLargest + 1); }),
            "trace: clock offset 1152921504606846977 ns is not within 1152921504606846976 ns");
  start();
  EXPECT_EQ(refusal([] { start(); }), "trace: started twice; hint: stop() first");
  stop();
}

}  // namespace
}  // namespace lockstep::trace
