// What ranks learn when one of them dies. Ranks are processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "launch/ports.h"
#include "lockstep/error.h"
#include "support/child.h"
#include "transport/control.h"
#include "transport/greeting.h"
#include "transport/process.h"
#include "transport/ranks.h"
#include "transport/raw.h"

namespace lockstep::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// "In under a second", with ten-fold slack.
constexpr std::chrono::seconds kNoticed{10};

/// Ranks of a job as processes: each meets the others, says "met", and goes on with `body`.
class Death : public ::testing::TestWithParam<Way> {
 protected:
  using Body = std::function<void(int rank, Control&, const Process::Say&)>;

  void start(int world, const Body& body) {
    const std::string name = fresh_name();
    const int port = launch::find_free_port();
    for (int rank = 0; rank < world; ++rank) {
      ranks.push_back(std::make_unique<Process>([&, rank](const Process::Say& say) {
        const auto control = meet(rank, world, name, port);
        say("met");
        body(rank, *control, say);
      }));
    }
    for (const auto& rank : ranks) ASSERT_EQ(rank->line(), "met");
  }

  Process& of(int rank) { return *ranks[static_cast<std::size_t>(rank)]; }

  std::vector<std::unique_ptr<Process>> ranks;

 private:
  std::unique_ptr<Control> meet(int rank, int world, const std::string& name, int port) const {
    const transport::MeetOptions options{.rank = rank, .world = world, .name = name, .deadline = patience()};
    if (GetParam() == Way::kHost) return transport::meet_on_host(options, -1).control;
    return transport::meet_on_network(options, network_at(port, name));
  }
};

INSTANTIATE_TEST_SUITE_P(, Death, ::testing::Values(Way::kHost, Way::kNetwork),
                         [](const auto& way) { return to_string(way.param); });

/// Waits for the failure, and says its peer and text.
void tell_failure(int, Control& control, const Process::Say& say) {
  if (!eventually([&] { return control.has_failed(); })) say("no failure");
  say(fmt::format("{} {}", control.failure()->peer, control.failure()->text));
}

TEST_P(Death, OfARankIsToldToAllInUnderASecond) {
  start(4, tell_failure);
  const auto killed = Control::Clock::now();
  of(2).kill(SIGKILL);
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(of(rank).line(), AllOf(StartsWith(fmt::format("2 rank 2 (pid {}", of(2).pid())),
                                       HasSubstr(") is gone: its connection ended without a goodbye")));
  }
  EXPECT_LT(Control::Clock::now() - killed, kNoticed);
}

TEST_P(Death, OfRank0IsSeenByAllInUnderASecond) {
  start(3, tell_failure);
  const auto killed = Control::Clock::now();
  of(0).kill(SIGKILL);
  for (const int rank : {1, 2}) {
    EXPECT_THAT(of(rank).line(), AllOf(StartsWith(fmt::format("0 rank 0 (pid {}", of(0).pid())),
                                       HasSubstr(") is gone: its connection ended without a goodbye")));
  }
  EXPECT_LT(Control::Clock::now() - killed, kNoticed);
}

TEST_P(Death, EndsAGatherThatWaitsForTheDead) {
  start(3, [](int rank, Control& control, const Process::Say& say) {
    if (rank == 1) pause();
    try {
      control.all_gather("never", all_of(3), "", patience());
    } catch (const PeerError& error) {
      say(fmt::format("{} {}", error.peer, error.what()));
    }
  });
  of(1).kill(SIGKILL);
  for (const int rank : {0, 2}) EXPECT_THAT(of(rank).line(), StartsWith("1 rank 1 (pid "));
}

TEST_P(Death, OfAChildIsNoDeath) {
  start(2, [](int, Control& control, const Process::Say& say) {
    for (int round = 0; round < 3; ++round) {
      const pid_t child = fork();
      if (child == 0) {
        if (round == 1) raise(SIGKILL);
        _exit(0);
      }
      waitpid(child, nullptr, 0);
      control.all_gather(std::to_string(round), all_of(2), "", patience());
    }
    control.leave(patience());
    say(control.has_failed() ? control.failure()->text : "no failure");
  });
  for (const int rank : {0, 1}) EXPECT_EQ(of(rank).line(), "no failure");
}

TEST_P(Death, AChildMayLetGoOfItsCopyButNotUseIt) {
#if defined(LOCKSTEP_ASAN)
  GTEST_SKIP() << "AddressSanitizer's allocator may be locked by another thread when a process forks";
#endif
  const std::string name = fresh_name();
  const int port = launch::find_free_port();
  const Way way = GetParam();
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<Process>([=](const Process::Say& say) {
      const transport::MeetOptions options{.rank = rank, .world = 2, .name = name, .deadline = patience()};
      auto control = way == Way::kHost ? transport::meet_on_host(options, -1).control
                                       : transport::meet_on_network(options, network_at(port, name));
      const pid_t child = fork();
      if (child == 0) {
        say(text_of<UsageError>([&] { control->leave(patience()); }));
        control.reset();
        _exit(0);
      }
      waitpid(child, nullptr, 0);
      control->all_gather("after", all_of(2), "", patience());
      control->leave(patience());
      say(control->has_failed() ? control->failure()->text : "no failure");
    }));
  }
  for (const int rank : {0, 1}) {
    EXPECT_THAT(of(rank).line(), HasSubstr("called in a forked child"));
    EXPECT_EQ(of(rank).line(), "no failure");
  }
}

/// A child that outlives its parent holds the parent's socket open; on one host the kernel still tells.
class DeathOfAParent : public Death {};
INSTANTIATE_TEST_SUITE_P(, DeathOfAParent, ::testing::Values(Way::kHost),
                         [](const auto& way) { return to_string(way.param); });

TEST_P(DeathOfAParent, IsNoticedThoughItsChildLives) {
  for (const int victim : {0, 1}) {
    ranks.clear();
    start(3, [victim](int rank, Control& control, const Process::Say& say) {
      if (rank != victim) return tell_failure(rank, control, say);
      const pid_t child = fork();
      if (child == 0) {
        for (;;) pause();
      }
      say(std::to_string(child));
      pause();
    });
    const pid_t child = std::stoi(of(victim).line());
    of(victim).kill(SIGKILL);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(of(rank).line(), StartsWith(fmt::format("{0} rank {0} (pid ", victim)));
    }
    kill(child, SIGKILL);
  }
}

TEST(StrangerOnHost, OfAnotherUidIsTurnedAwayAndDoesNoHarm) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kNobody = 65534;
  const std::string name = fresh_name();
  const auto meet = [&](int rank) {
    return [&name, rank](const Process::Say& say) {
      say("here");
      const auto host =
          transport::meet_on_host({.rank = rank, .world = 2, .name = name, .deadline = patience()}, -1);
      host.control->leave(patience());
      say("left");
    };
  };
  Process rank_0(meet(0));
  ASSERT_EQ(rank_0.line(), "here");
  Process stranger([&](const Process::Say& say) {
    if (setuid(kNobody) != 0) return say("cannot become nobody");
    launch::UniqueFd fd;  // to the socket of root's meeting, which a rank of this user would never find
    if (!eventually([&] { return static_cast<bool>(fd = connect_on_host(0, name)); }))
      return say("cannot connect");
    send_bytes(fd.get(), transport::make_hello(
                             {.rank = 1, .world = 2, .pid = getpid(), .name = transport::digest(name)}));
    say(is_closed_by_peer(fd.get()) ? "turned away" : "let in");
  });
  EXPECT_EQ(stranger.line(), "turned away");
  Process rank_1(meet(1));
  EXPECT_EQ(rank_1.line(), "here");
  EXPECT_EQ(rank_0.line(), "left");
  EXPECT_EQ(rank_1.line(), "left");
}

}  // namespace
}  // namespace lockstep::test
