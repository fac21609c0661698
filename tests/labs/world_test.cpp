// The simulated cluster that lessons run on.
#include "lab/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "lab/calls.h"
#include "lab/sums.h"

namespace lab {
namespace {

using testing::HasSubstr;

TEST(World, MovesMessagesInOrder) {
  std::vector<float> arrived(3);
  const auto report = run_world({.world = 2}, [&](Rank& rank) {
    for (float value = 0; value < 3; ++value) {
      if (rank.rank() == 0) rank.send(std::vector<float>{value}, 1);
      if (rank.rank() == 1) rank.recv(std::span(arrived).subspan(static_cast<size_t>(value), 1), 0);
    }
  });
  EXPECT_EQ(report.problem, "") << report.what;
  EXPECT_THAT(arrived, testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(report.bytes[0][1], 12);
  EXPECT_EQ(report.sent_messages(0), 3);
  EXPECT_EQ(report.received_bytes(1), 12);
}

TEST(World, TellsOfADeadlockWhoWaitsForWhom) {
  const auto report = run_world({.world = 3}, [](Rank& rank) {
    std::vector<float> data(2);
    if (rank.rank() < 2) rank.recv(data, 1 - rank.rank());
  });
  EXPECT_EQ(report.problem, "deadlock");
  EXPECT_THAT(report.what, HasSubstr("rank 0 in recv from rank 1 (2 floats)"));
  EXPECT_THAT(report.what, HasSubstr("rank 1 in recv from rank 0 (2 floats)"));
  EXPECT_THAT(report.what, HasSubstr("rank 2 is done"));
}

TEST(World, SendsWaitForTheirReceiveOnlyInARendezvous) {
  const auto send_first = [](Rank& rank) {
    std::vector<float> data(1), other(1);
    rank.send(data, 1 - rank.rank());
    rank.recv(other, 1 - rank.rank());
  };
  EXPECT_EQ(run_world({.world = 2}, send_first).problem, "");
  const auto report = run_world({.world = 2, .rendezvous = true}, send_first);
  EXPECT_EQ(report.problem, "deadlock");
  EXPECT_THAT(report.what, HasSubstr("rank 0 in send to rank 1"));
}

/// The name of the problem that one rank's misuse is.
std::string problem_of(const std::function<void(Rank&)>& body, int world = 2) {
  return run_world({.world = world}, body).problem;
}

TEST(World, NamesEveryMisuse) {
  std::vector<float> one(1), two(2);
  EXPECT_EQ(problem_of([&](Rank& rank) { rank.rank() == 0 ? rank.send(one, 1) : rank.recv(two, 0); }),
            "wrong size");
  EXPECT_EQ(problem_of([&](Rank& rank) { rank.send(one, 2); }), "wrong rank");
  EXPECT_EQ(problem_of([&](Rank& rank) { rank.send(one, rank.rank()); }), "wrong rank");
  EXPECT_EQ(problem_of([](Rank&) { throw std::runtime_error("no"); }), "exception");
  EXPECT_EQ(problem_of([&](Rank& rank) {
              if (rank.rank() == 1) return rank.recv(two, 0);
              std::vector<float> data(2, 1);
              auto work = rank.isend(data, 1);
              data[1] = 2;
              work.wait();
            }),
            "buffer changed");
  EXPECT_EQ(problem_of([&](Rank& rank) {
              if (rank.rank() == 1) return rank.recv(one, 0);
              rank.isend(std::vector<float>(1), 1);
            }),
            "never waited");
  EXPECT_EQ(problem_of([&](Rank& rank) {
              if (rank.rank() == 0) rank.send(one, 1);
            }),
            "never received");
  EXPECT_EQ(problem_of(
                [](Rank& rank) {
                  while (true) rank.compute(0);
                },
                1),
            "endless");
}

TEST(World, AMessageTakesLatencyAndBytes) {
  std::vector<float> data(100);
  const auto report = run_world({.world = 2, .latency_us = 3, .us_per_byte = 0.5}, [&](Rank& rank) {
    rank.rank() == 0 ? rank.send(data, 1) : rank.recv(data, 0);
  });
  EXPECT_DOUBLE_EQ(report.time_us, 3 + 400 * 0.5);
}

TEST(World, ARanksWayInIsHeldByOneMessageAtATime) {
  const auto report = run_world({.world = 5, .latency_us = 1}, [](Rank& rank) {
    std::vector<float> data(1);
    if (rank.rank() != 0) return rank.send(data, 0);
    for (int from = 1; from < 5; ++from) rank.recv(data, from);
  });
  EXPECT_DOUBLE_EQ(report.time_us, 4);
}

TEST(World, WhatIsStartedRunsBesideItsRank) {
  const auto report = run_world({.world = 2, .latency_us = 10}, [](Rank& rank) {
    std::vector<float> data(1), arrived(1);
    auto work = rank.start([&](Rank& stream) {
      auto sending = stream.isend(data, 1 - stream.rank());
      stream.recv(arrived, 1 - stream.rank());
      sending.wait();
    });
    rank.compute(8);
    work.wait();
  });
  EXPECT_EQ(report.problem, "") << report.what;
  EXPECT_DOUBLE_EQ(report.time_us, 10);
}

TEST(World, WhatIsStartedRunsInTheOrderOfStarting) {
  const auto report = run_world({.world = 1}, [](Rank& rank) {
    auto first = rank.start([](Rank& stream) { stream.compute(5); });
    auto second = rank.start([](Rank& stream) { stream.compute(1); });
    second.wait();
    EXPECT_DOUBLE_EQ(rank.now_us(), 6);
    first.wait();
  });
  EXPECT_EQ(report.problem, "") << report.what;
}

TEST(World, WhatWasStartedAndIsOverKeepsNoStack) {
  const auto bytes = [] {
    std::ifstream statm("/proc/self/statm");  // in pages, the first number is all of the memory
    int64_t pages = 0;
    statm >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  };
  int64_t grown = 0;
  const auto report = run_world({.world = 1}, [&](Rank& rank) {
    const int64_t before = bytes();
    for (int i = 0; i < 200; ++i) rank.start([](Rank&) {}).wait();
    grown = bytes() - before;
  });
  EXPECT_EQ(report.problem, "") << report.what;
  EXPECT_LT(grown, 400'000'000);  // 200 stacks are 1.6 GB
}

TEST(World, TheSameSeedIsTheSameRun) {
  const auto order_of = [](uint64_t seed) {
    const auto report = run_world({.world = 4, .seed = seed}, [](Rank& rank) {
      for (int i = 0; i < 5; ++i) rank.compute(1);
    });
    std::vector<int> order;
    for (const auto& event : report.events) order.push_back(event.rank);
    return order;
  };
  EXPECT_EQ(order_of(3), order_of(3));
  EXPECT_NE(order_of(3), order_of(4));
}

TEST(World, EventsTellThePlaceInTheWatchedMemory) {
  const auto report = run_world({.world = 2}, [](Rank& rank) {
    std::vector<float> data(10);
    rank.watch(data);
    const auto part = std::span(data).subspan(4, 2);
    rank.rank() == 0 ? rank.send(part, 1) : rank.recv(part, 0);
  });
  ASSERT_EQ(report.events.size(), 2U);
  for (const auto& event : report.events) {
    EXPECT_EQ(event.place, 4);
    EXPECT_EQ(event.count, 2);
  }
}

TEST(CountedBuffers, NameWhatStandsInPlaceOfTheSum) {
  const auto operation = [](int world, auto apply) {
    auto buffers = CountedBuffers::make(world, 12);
    for (size_t i = 0; i < 12; ++i) {
      float all = buffers.of(0)[i];
      for (int r = 1; r < world; ++r) all = apply(all, buffers.of(r)[i]);
      buffers.of(1)[i] = all;
    }
    return buffers.other_operation(1);
  };
  for (const int world : {2, 3, 8, 13}) {
    EXPECT_EQ(operation(world, [](float a, float b) { return std::max(a, b); }), "maximum");
    EXPECT_EQ(operation(world, [](float a, float b) { return std::min(a, b); }), "minimum");
    EXPECT_EQ(operation(world, [](float a, float b) { return a + b; }), "");
    EXPECT_EQ(operation(world, [](float, float b) { return b; }), "") << "one rank's alone is not a maximum";
  }
  EXPECT_EQ(operation(2, [](float a, float b) { return (a + b) / 2; }), "mean");
}

/// A struct that calls hand back.
struct Left {
  Report report;
  std::vector<float> data;
};

/// What a check says of a function that it calls three times in one process.
Failure judged(const std::function<float(int)>& function) {
  const auto result = run_check(
      [&](Checker& checker) {
        judge_calls(
            checker, std::vector{1, 2, 3},
            [&](int x) {
              return Left{{}, {function(x)}};
            },
            [](int x, const Left& left) -> std::optional<Failure> {
              if (left.data == std::vector{static_cast<float>(x)}) return std::nullopt;
              return Failure{"wrong", "it is not x", "say x"};
            });
        checker.proved("it says x");
      },
      {});
  return result.failure;
}

TEST(JudgeCalls, SeparatesStateFromACallThatIsWrongAlone) {
  EXPECT_EQ(judged([](int x) { return static_cast<float>(x); }).name, "");
  EXPECT_EQ(judged([](int x) { return static_cast<float>(x > 1); }).name, "wrong");
  EXPECT_EQ(judged([first = 0](int x) mutable {
              if (first == 0) first = x;
              return static_cast<float>(first);
            }).name,
            "state kept");
}

}  // namespace
}  // namespace lab
