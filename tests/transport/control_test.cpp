// What the control plane promises to ranks that have met, whichever way they met. Ranks are threads.
#include "transport/control.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <thread>

#include "lockstep/error.h"
#include "support/child.h"
#include "transport/io.h"
#include "transport/ranks.h"

namespace lockstep::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using transport::Failure;

class ControlOf : public ::testing::TestWithParam<Way> {
 protected:
  void meet(int world) { controls = meet_all(GetParam(), world); }
  Control& of(int rank) { return *controls[static_cast<std::size_t>(rank)]; }
  int world() const { return static_cast<int>(controls.size()); }

  std::vector<std::unique_ptr<Control>> controls;
};

INSTANTIATE_TEST_SUITE_P(, ControlOf, ::testing::Values(Way::kHost, Way::kNetwork),
                         [](const auto& way) { return to_string(way.param); });

TEST_P(ControlOf, GathersInTheOrderOfRanks) {
  for (const int size : {1, 2, 5}) {
    meet(size);
    run_ranks(size, [&](int rank) {
      for (int round = 0; round < 20; ++round) {
        const auto got = of(rank).all_gather(
            fmt::format("round {}", round), all_of(size),
            std::string(static_cast<std::size_t>(rank), 'x') + std::to_string(round), patience());
        ASSERT_EQ(static_cast<int>(got.size()), size);
        for (int r = 0; r < size; ++r) {
          EXPECT_EQ(got[static_cast<std::size_t>(r)],
                    std::string(static_cast<std::size_t>(r), 'x') + std::to_string(round));
        }
      }
    });
    leave_all(controls);
  }
}

TEST_P(ControlOf, GathersInGroupsThatShareRanks) {
  meet(5);
  const std::vector<std::vector<int>> groups = {{0, 1}, {1, 2, 4}, {3}, {2, 3}, {0, 4}};
  run_ranks(5, [&](int rank) {
    for (const auto& group : groups) {
      if (std::find(group.begin(), group.end(), rank) == group.end()) continue;
      std::vector<std::string> expected;
      for (const int member : group) expected.push_back(fmt::format("of {}", member));
      EXPECT_EQ(of(rank).all_gather(fmt::format("group {}", fmt::join(group, ",")), group,
                                    fmt::format("of {}", rank), patience()),
                expected);
    }
  });
  leave_all(controls);
}

TEST_P(ControlOf, GathersSeveralTagsAtOnce) {
  constexpr int kTags = 8;
  meet(3);
  run_ranks(3, [&](int rank) {
    run_ranks(kTags, [&](int tag) {
      for (int round = 0; round < 10; ++round) {
        const auto blob = [&](int of_rank) { return fmt::format("{} {} {}", tag, round, of_rank); };
        EXPECT_THAT(of(rank).all_gather(fmt::format("{}.{}", tag, round), all_of(3), blob(rank), patience()),
                    ElementsAre(blob(0), blob(1), blob(2)));
      }
    });
  });
  leave_all(controls);
}

TEST_P(ControlOf, GathersTheLargestBlobsAndEmptyOnes) {
  meet(3);
  run_ranks(3, [&](int rank) {
    const auto blob = [](int r) {
      return r == 1 ? std::string() : std::string(std::size_t{1} << 20, static_cast<char>('a' + r));
    };
    EXPECT_TRUE(of(rank).all_gather("large", all_of(3), blob(rank), patience()) ==
                (std::vector{blob(0), blob(1), blob(2)}));
  });
  leave_all(controls);
}

TEST_P(ControlOf, MoreRanksMayComeAtOnceThanRank0ListensTo) {
  constexpr int kWorld = 80;
  meet(kWorld);
  run_ranks(kWorld, [&](int rank) {
    const auto got = of(rank).all_gather("all", all_of(kWorld), std::to_string(rank), patience());
    for (int r = 0; r < kWorld; ++r) EXPECT_EQ(got[static_cast<std::size_t>(r)], std::to_string(r));
  });
  leave_all(controls);
}

TEST_P(ControlOf, RefusesWhatNoGatherCanBe) {
  meet(2);
  const auto refusal = [&](const std::string& tag, const std::vector<int>& members, std::size_t bytes) {
    return text_of<UsageError>([&] { of(1).all_gather(tag, members, std::string(bytes, 'x'), patience()); });
  };
  EXPECT_THAT(refusal("t", {0, 1}, (1 << 20) + 1), HasSubstr("a blob of 1048577 bytes, at most 1048576"));
  EXPECT_THAT(refusal("t", {1, 0}, 1), HasSubstr("members are ranks 1 and 0, expected in ascending order"));
  EXPECT_THAT(refusal("t", {0}, 1), HasSubstr("members are rank 0, expected this rank among them"));
  EXPECT_THAT(refusal("t", {1, 2}, 1), HasSubstr("ranks 1 and 2, expected ranks from 0 to 1"));
  EXPECT_THAT(refusal("", {0, 1}, 1), HasSubstr("a tag of 0 bytes, expected 1 to 256"));
  leave_all(controls);
}

TEST_P(ControlOf, GatherNamesThoseWhoDidNotComeUntilTheDeadline) {
  meet(4);
  run_ranks(4, [&](int rank) {
    if (rank == 1 || rank == 3) return;
    try {
      of(rank).all_gather("short", all_of(4), "", in_ms(1500));
      ADD_FAILURE() << "it came back";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(fmt::format("all_gather 'short' on rank {}: ranks 1 and 3 did not come within 1.",
                                        rank)));
      EXPECT_EQ(error.peer, 1);
    }
  });
  EXPECT_FALSE(of(0).has_failed());
  leave_all(controls);
}

TEST_P(ControlOf, AFailureIsEverybodysAndTheFirstWins) {
  meet(4);
  std::mutex mutex;
  std::set<std::string> seen;
  run_ranks(4, [&](int rank) {
    EXPECT_FALSE(of(rank).failure().has_value());
    of(rank).all_gather("all look first", all_of(4), "", patience());
    if (rank != 3) of(rank).fail({rank, fmt::format("rank {} is out of luck", rank)});
    EXPECT_TRUE(eventually([&] { return of(rank).has_failed(); }));
    const auto failure = of(rank).failure();
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->text, fmt::format("rank {} is out of luck", failure->peer));
    const std::lock_guard lock(mutex);
    seen.insert(failure->text);
  });
  EXPECT_EQ(seen.size(), 1u);
  of(3).fail({3, "late"});
  EXPECT_EQ(of(3).failure()->text, *seen.begin());
  leave_all(controls);
}

TEST_P(ControlOf, AFailureEndsGathersWithItsText) {
  meet(3);
  run_ranks(3, [&](int rank) {
    if (rank == 2) {
      of(rank).fail({1, "rank 1 sent 5 elements, expected 4"});
      return;
    }
    for (const char* tag : {"during or after", "after"}) {
      try {
        of(rank).all_gather(tag, all_of(3), "", patience());
        ADD_FAILURE() << "it came back";
      } catch (const PeerError& error) {
        EXPECT_STREQ(error.what(), "rank 1 sent 5 elements, expected 4");
        EXPECT_EQ(error.peer, 1);
      }
    }
  });
  leave_all(controls);
}

TEST_P(ControlOf, MembersThatDisagreeWhoGathersFailByName) {
  meet(3);
  run_ranks(3, [&](int rank) {
    const std::vector<int> members = rank == 1 ? std::vector{1, 2} : std::vector{0, 1, 2};
    const std::string text = text_of<PeerError>([&] { of(rank).all_gather("who", members, "", patience()); });
    EXPECT_THAT(text, AllOf(HasSubstr("all_gather 'who' on rank "), HasSubstr("ranks 1 and 2"),
                            HasSubstr("ranks 0, 1 and 2")));
  });
  leave_all(controls);
}

TEST_P(ControlOf, GoodbyeIsNoDeath) {
  meet(3);
  std::thread first([&] {
    of(1).leave(patience());
    controls[1].reset();
  });
  first.join();
  run_ranks(3, [&](int rank) {
    if (rank == 1) return;
    of(rank).all_gather("without rank 1", {0, 2}, "", patience());
    EXPECT_FALSE(of(rank).has_failed());
    of(rank).leave(patience());
    EXPECT_FALSE(of(rank).has_failed());
  });
}

TEST_P(ControlOf, AMemberThatHasLeftIsNamed) {
  meet(3);
  run_ranks(3, [&](int rank) {
    if (rank != 1) {
      try {
        of(rank).all_gather("with rank 1", all_of(3), "", patience());
        ADD_FAILURE() << "it came back";
      } catch (const PeerError& error) {
        EXPECT_EQ(std::string(error.what()),
                  fmt::format("all_gather 'with rank 1' on rank {}: rank 1 has left the job and gave nothing",
                              rank));
        EXPECT_EQ(error.peer, 1);
      }
      EXPECT_FALSE(of(rank).has_failed());
    }
    of(rank).leave(patience());
  });
}

TEST_P(ControlOf, ARankThatEndsWithoutLeavingIsDeadToTheOthers) {
  for (const int victim : {0, 2}) {
    meet(3);
    controls[static_cast<std::size_t>(victim)].reset();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_TRUE(eventually([&] { return of(rank).has_failed(); }));
      EXPECT_EQ(of(rank).failure()->peer, victim);
      EXPECT_THAT(of(rank).failure()->text,
                  AllOf(HasSubstr(fmt::format("rank {} (pid {}", victim, getpid())),
                        HasSubstr(" is gone: its connection ended without a goodbye")));
    }
  }
}

TEST_P(ControlOf, Rank0WaitsForTheOthersUntilItsDeadlineAndThenSaysSo) {
  meet(2);
  of(0).leave(in_ms(50));
  EXPECT_FALSE(of(1).has_failed());
  controls[0].reset();
  EXPECT_TRUE(eventually([&] { return of(1).has_failed(); }));
  EXPECT_THAT(of(1).failure()->text, HasSubstr("has left before the others"));
}

TEST_P(ControlOf, NothingIsLeftAfterwards) {
  meet(3);  // whatever is opened once, such as by the sanitizers
  leave_all(controls);
  controls.clear();
  const int descriptors = count_own("fd");
  const int threads = count_own("task");
  for (const bool orderly : {true, false}) {
    meet(3);
    EXPECT_GT(count_own("task"), threads);
    if (orderly) leave_all(controls);
    controls.clear();
  }
  EXPECT_EQ(count_own("fd"), descriptors);
  EXPECT_TRUE(eventually([&] { return count_own("task") == threads; }));
}

TEST_P(ControlOf, AStormOfSignalsDisturbsNothing) {
  const SignalStorm storm;
  const int before = SignalStorm::delivered();
  meet(3);
  run_ranks(3, [&](int rank) {
    for (int round = 0; round < 100; ++round) {
      of(rank).all_gather(std::to_string(round), all_of(3), std::string(10000, 'x'), patience());
    }
  });
  leave_all(controls);
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(of(rank).has_failed());
  EXPECT_GT(SignalStorm::delivered(), before);
}

TEST(WaitFor, GoesOnAfterASignal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const launch::UniqueFd reading(ends[0]);
  const launch::UniqueFd writing(ends[1]);
  const SignalStorm storm;
  const int before = SignalStorm::delivered();
  {
    const std::jthread writer([&] {
      EXPECT_TRUE(eventually([&] { return SignalStorm::delivered() >= before + 100; }));
      EXPECT_EQ(write(writing.get(), "x", 1), 1);
    });
    run_ranks(1, [&](int) { EXPECT_TRUE(transport::wait_for(reading.get(), POLLIN, patience())); });
  }
  run_ranks(1, [&](int) {
    const auto deadline = in_ms(200);
    EXPECT_FALSE(transport::wait_for(writing.get(), POLLIN, deadline));
    EXPECT_GE(Control::Clock::now(), deadline);
  });
}

}  // namespace
}  // namespace lockstep::test
