// Threads as ranks: each has its own, ends when it likes, and is read while it writes.
#include "lockstep/trace/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "lockstep/trace/writer.h"
#include "trace/ring.h"

namespace lockstep::trace {
namespace {

const Name kName("step");

std::map<int, int> spans_by_rank(const Trace& trace) {
  std::map<int, int> counts;
  for (const Span& span : trace.spans) ++counts[span.rank];
  return counts;
}

TEST(TraceThreads, HaveTheRankOfTheProcessUnlessTheySayOtherwise) {
  start({.rank = 4});
  std::thread([] { record(kName, 1, 1); }).join();
  std::thread([] {
    set_rank(6);
    record(kName, 2, 2);
    record(kName, 3, 3);
    set_rank(7);
    record(kName, 4, 4);
    set_rank(6);
    record(kName, 5, 5);
  }).join();
  const Trace trace = stop();
  EXPECT_EQ(spans_by_rank(trace), (std::map<int, int>{{4, 1}, {6, 3}, {7, 1}}));
  ASSERT_EQ(trace.ranks.size(), 3U);
  EXPECT_EQ(trace.ranks[1].rank, 6);
}

TEST(TraceThreads, LeaveTheirSpansAndTheirRingWhenTheyEnd) {
  start({.most_spans_per_thread = 5});
  // One ring for all, since one thread lives at a time: memory does not grow with the number of threads.
  for (int i = 0; i < 8; ++i) std::thread([i] { record(kName, i, i); }).join();
  const Trace trace = stop();
  EXPECT_EQ(trace.spans.size(), 5U);
  EXPECT_EQ(trace.ranks.at(0).dropped, 3);
  EXPECT_EQ(trace.spans.front().begin_ns, 3);
}

TEST(TraceThreads, CountDroppedSpansForTheRankThatLostThem) {
  start({.most_spans_per_thread = 10});
  for (const int rank : {0, 1, 2}) {
    std::thread([rank] {
      set_rank(rank);
      for (int i = 0; i < 10 * (rank + 1); ++i) record(kName, i, i);
    }).join();
  }
  const Trace trace = stop();
  for (const int rank : {0, 1, 2}) EXPECT_EQ(trace.ranks.at(static_cast<size_t>(rank)).dropped, 10 * rank);
}

/// Records when the thread's own objects are destroyed, after its ring was given back.
struct LastWords {
  bool armed = false;
  ~LastWords() {
    if (armed) record(kName, 9, 9);
  }
};

TEST(TraceThreads, CountWhatTheyRecordAfterTheirEndAsDropped) {
  start();
  std::thread([] {
    thread_local LastWords last_words;  // Made before the ring's lease, so destroyed after it.
    last_words.armed = true;
    record(kName, 1, 1);
  }).join();
  const Trace trace = stop();
  EXPECT_EQ(trace.spans.size(), 1U);
  EXPECT_EQ(trace.ranks.at(0).dropped, 1);
}

// Every span says the same thing four times; a torn one would not.
TEST(TraceThreads, AreReadWholeWhileTheyOverwriteTheirRings) {
  constexpr int kRanks = 4;
  constexpr int kThreadsPerRank = 2;
  constexpr int64_t kSpans = 20000;
  start({.most_spans_per_thread = 16});
  std::atomic<int> running = kRanks * kThreadsPerRank;
  std::vector<std::thread> threads;
  for (int t = 0; t < kRanks * kThreadsPerRank; ++t) {
    threads.emplace_back([&, t] {
      set_rank(t % kRanks);
      for (int64_t i = 0; i < kSpans; ++i) {
        record(kName, i, i, {.stream = Stream::kProgress, .bytes = i, .peer = t % kRanks, .call = i});
      }
      --running;
    });
  }
  const auto check = [](const Trace& trace) {
    for (const Span& span : trace.spans) {
      ASSERT_EQ(span.end_ns, span.begin_ns);
      ASSERT_EQ(span.bytes, span.begin_ns);
      ASSERT_EQ(span.call, span.begin_ns);
      ASSERT_EQ(span.peer, span.rank);
      ASSERT_EQ(span.stream, Stream::kProgress);
    }
  };
  do {
    check(collect());
  } while (running > 0);
  for (std::thread& thread : threads) thread.join();
  const Trace trace = stop();
  check(trace);
  int64_t all = static_cast<int64_t>(trace.spans.size());
  for (const RankRecord& rank : trace.ranks) all += rank.dropped;
  EXPECT_EQ(all, kRanks * kThreadsPerRank * kSpans);
}

TEST(TraceRing, AReaderLeavesOutWhatIsOverwrittenWhileItReads) {
  constexpr size_t kCapacity = 50'000;  // long to read, so that the writer overtakes the reader
  Ring ring(0, kCapacity);
  std::atomic<bool> over = false;
  std::thread writer([&] {
    for (int64_t i = 0; !over; ++i) ring.append(Event::of(kName, i, i, {}));
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool overtaken = false;
  while (!overtaken && std::chrono::steady_clock::now() < deadline && !testing::Test::HasFailure()) {
    std::vector<Span> spans;
    const int64_t dropped = ring.read(spans);
    overtaken = dropped > 0 && spans.size() < kCapacity;
    const int64_t newest = dropped + std::ssize(spans) - 1;
    for (int64_t i = 0; i < std::ssize(spans) && !testing::Test::HasFailure(); ++i) {
      EXPECT_EQ(spans[static_cast<size_t>(i)].begin_ns, newest - i);
    }
  }
  over = true;
  writer.join();
  EXPECT_TRUE(overtaken);
}

TEST(TraceThreads, MayWriteWhileTracingStartsAndStops) {
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      set_rank(rank);
      while (!done) const Scope scope(kName, {.bytes = 1});
    });
  }
  for (int i = 0; i < 50; ++i) {
    start({.most_spans_per_thread = 1 + i});
    std::this_thread::yield();
    const Trace trace = i % 2 == 0 ? collect() : Trace{};
    for (const Span& span : trace.spans) EXPECT_EQ(span.bytes, 1);
    stop();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(enabled());
}

}  // namespace
}  // namespace lockstep::trace
