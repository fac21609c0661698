// Whom rank 0 listens to, for how long, and how it judges who is late.
#include "transport/reception.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "support/child.h"
#include "transport/patience.h"
#include "transport/process.h"
#include "transport/ranks.h"
#include "transport/raw.h"

namespace lockstep::test {
namespace {

using launch::UniqueFd;
using transport::Guest;
using transport::Newcomer;

/// Rank 1 as soon as it says anything.
class CountedGuest final : public Guest {
 public:
  CountedGuest(UniqueFd socket, int& count) : socket_(std::move(socket)), count_(count) { ++count_; }
  ~CountedGuest() override { --count_; }
  int fd() const override { return socket_.get(); }
  Standing read() override { return Standing::kKnown; }
  Newcomer take() override {
    return {.claim = {.rank = 1, .world = 2, .pid = 1, .name = transport::digest("counted")},
            .where = "here",
            .socket = std::move(socket_),
            .descriptor = {},
            .process = {}};
  }

 private:
  UniqueFd socket_;
  int& count_;
};

TEST(Reception, ListensTo64AtATimeAndARankStillGetsIn) {
  const std::string name = fresh_name();
  const UniqueFd listener = listen_on_host(name);
  ASSERT_EQ(listen(listener.get(), 200), 0);
  ASSERT_EQ(fcntl(listener.get(), F_SETFL, O_NONBLOCK), 0);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 150; ++i) silent.push_back(connect_on_host(geteuid(), name));
  const UniqueFd rank_1 = connect_on_host(geteuid(), name);
  send_bytes(rank_1.get(), "x");

  int count = 0;
  int most = 0;
  const transport::Meeting meeting({.rank = 0, .world = 2, .name = "counted", .deadline = patience()});
  const auto newcomers =
      receive_ranks(meeting, {.listener = listener.get(), .open = [&](UniqueFd socket) {
                                auto guest = std::make_unique<CountedGuest>(std::move(socket), count);
                                most = std::max(most, count);
                                return guest;
                              }});
  EXPECT_TRUE(newcomers[1].socket);
  EXPECT_EQ(most, 64 + 1) << "the last takes the place of the oldest";
}

/// Rank 0 is busy until `over` as soon as the `nth` has connected; rank 1, the first, speaks meanwhile.
bool is_met_by_a_busy_rank_0(int nth, Control::Clock::time_point over, Control::Clock::time_point deadline) {
  const std::string name = fresh_name();
  const UniqueFd listener = listen_on_host(name);
  listen(listener.get(), 10);
  fcntl(listener.get(), F_SETFL, O_NONBLOCK);
  std::vector<UniqueFd> connections;
  for (int i = 0; i < nth; ++i) connections.push_back(connect_on_host(geteuid(), name));
  int count = 0;
  int connected = 0;
  const auto open = [&](UniqueFd socket) {
    if (++connected == nth) {
      send_bytes(connections[0].get(), "x");
      std::this_thread::sleep_until(over);
    }
    return std::make_unique<CountedGuest>(std::move(socket), count);
  };
  const transport::Meeting meeting({.rank = 0, .world = 2, .name = "counted", .deadline = deadline});
  return static_cast<bool>(receive_ranks(meeting, {.listener = listener.get(), .open = open})[1].socket);
}

TEST(Reception, ABusyRank0ReadsWhatHasComeBeforeItDropsAConnectionAsSilent) {
  EXPECT_TRUE(is_met_by_a_busy_rank_0(2, in_ms(5500), patience()));
}

TEST(Reception, ABusyRank0ReadsWhatHasComeBeforeTheMeetingIsOver) {
  EXPECT_TRUE(is_met_by_a_busy_rank_0(1, in_ms(400), in_ms(200)));
}

TEST(Reception, ARankThatWasStoppedOverADeadlineTakesWhatCameMeanwhile) {
  const std::string name = fresh_name();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto meet = [&](int rank) {
    return transport::meet_on_host({.rank = rank, .world = 2, .name = name, .deadline = patience()}, -1);
  };
  Process rank_0([&](const Process::Say& say) {
    const auto host = meet(0);
    char byte = 0;
    if (read(ends[0], &byte, 1) != 1) return;
    host.control->all_gather("tag", {0, 1}, "", patience());
    say("gathered");
    read(ends[0], &byte, 1);
  });
  Process rank_1([&](const Process::Say& say) {
    const auto host = meet(1);
    say("met");
    host.control->all_gather("tag", {0, 1}, "", in_ms(1000));
    say("gathered");
  });
  EXPECT_EQ(rank_1.line(), "met");
  const auto over = in_ms(1500);
  std::this_thread::sleep_until(over - std::chrono::milliseconds(1200));  // most likely it waits by then
  rank_1.kill(SIGSTOP);
  EXPECT_EQ(write(ends[1], "x", 1), 1);
  std::this_thread::sleep_until(over);
  rank_1.kill(SIGCONT);
  EXPECT_EQ(rank_1.line(), "gathered");
  for (const int end : ends) close(end);
}

TEST(Patience, LooksOnceMoreAfterTheTimeIsOver) {
  transport::Signal signal;
  const std::atomic<bool> failed = false;
  const transport::Limit limit = {.timeout = std::chrono::nanoseconds(1), .failed = &failed};
  transport::Patience patience(limit, /*crowded=*/true);
  using enum transport::Patience::Verdict;
  while (patience.wait(signal, 0) == kGoOn) {
  }
  EXPECT_EQ(patience.wait(signal, 0), kGoOn);
  EXPECT_EQ(patience.wait(signal, 0), kTimedOut);
}

}  // namespace
}  // namespace lockstep::test
