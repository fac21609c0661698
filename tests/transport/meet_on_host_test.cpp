// How ranks meet on one host, and what they say when they do not. Ranks are threads.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include "lockstep/error.h"
#include "support/child.h"
#include "transport/control.h"
#include "transport/greeting.h"
#include "transport/ranks.h"
#include "transport/raw.h"

namespace lockstep::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using transport::Host;
using transport::meet_on_host;
using transport::MeetOptions;

launch::UniqueFd knock(const std::string& meeting) {
  return connect_on_host(geteuid(), meeting);
}

std::string hello_of(std::uint32_t rank, std::uint32_t world, const std::string& meeting) {
  return transport::make_hello(
      {.rank = rank, .world = world, .pid = getpid(), .name = transport::digest(meeting)});
}

/// A meeting as rank `rank`, in a thread.
std::future<Host> meet_later(const MeetOptions& options) {
  return std::async(std::launch::async, [options] { return meet_on_host(options, -1); });
}

/// Both at once: rank 0 stays until the others have left.
void leave_both(Host& rank_0, Host& rank_1) {
  run_ranks(2, [&](int rank) { (rank == 0 ? rank_0 : rank_1).control->leave(patience()); });
}

TEST(MeetOnHost, DescriptorsArriveInTheOrderOfRanks) {
  for (const int world : {1, 2, 5}) {
    const std::string name = fresh_name();
    run_ranks(world, [&](int rank) {
      const auto own = make_memfd(fmt::format("memory of rank {}", rank));
      Host host =
          meet_on_host({.rank = rank, .world = world, .name = name, .deadline = patience()}, own.get());
      ASSERT_EQ(host.descriptors.size(), static_cast<std::size_t>(world));
      for (int r = 0; r < world; ++r) {
        const int fd = host.descriptors[static_cast<std::size_t>(r)].get();
        EXPECT_EQ(read_memfd(fd), fmt::format("memory of rank {}", r));
        EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
        EXPECT_NE(fd, own.get());
      }
      host.control->leave(patience());
    });
  }
}

TEST(MeetOnHost, ARankMayBringNoDescriptor) {
  const std::string name = fresh_name();
  run_ranks(3, [&](int rank) {
    const auto own = make_memfd("of rank 1");
    Host host = meet_on_host({.rank = rank, .world = 3, .name = name, .deadline = patience()},
                             rank == 1 ? own.get() : -1);
    EXPECT_FALSE(host.descriptors[0]);
    EXPECT_EQ(read_memfd(host.descriptors[1].get()), "of rank 1");
    EXPECT_FALSE(host.descriptors[2]);
    host.control->leave(patience());
  });
}

TEST(MeetOnHost, MoreDescriptorsThanOneMessageCarries) {
  // 260 ranks would hold 260 * 260 descriptors in this process: the meeting of 1 real rank is with raw ones.
  constexpr int kWorld = 260;
  const std::string name = fresh_name();
  auto rank_0 = std::async(std::launch::async, [&] {
    const auto own = make_memfd("memory of rank 0");
    return meet_on_host({.rank = 0, .world = kWorld, .name = name, .deadline = patience()}, own.get());
  });
  ASSERT_TRUE(eventually([&] { return is_bound(name); }));
  std::vector<launch::UniqueFd> others;
  for (int rank = 1; rank < kWorld - 1; ++rank) {
    others.push_back(knock(name));
    const std::string hello = hello_of(static_cast<std::uint32_t>(rank), kWorld, name);
    const auto memfd = make_memfd(fmt::format("memory of rank {}", rank));
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    iovec piece = {const_cast<char*>(hello.data()), hello.size()};
    msghdr message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = memfd.get();
    std::copy_n(reinterpret_cast<const char*>(&fd), sizeof fd, reinterpret_cast<char*>(CMSG_DATA(part)));
    ASSERT_EQ(sendmsg(others.back().get(), &message, 0), static_cast<ssize_t>(hello.size()));
  }
  const auto own = make_memfd(fmt::format("memory of rank {}", kWorld - 1));
  const Host last =
      meet_on_host({.rank = kWorld - 1, .world = kWorld, .name = name, .deadline = patience()}, own.get());
  const Host first = rank_0.get();
  for (const Host* host : {&first, &last}) {
    for (int rank = 0; rank < kWorld; ++rank) {
      ASSERT_EQ(read_memfd(host->descriptors[static_cast<std::size_t>(rank)].get()),
                fmt::format("memory of rank {}", rank));
    }
  }
}

TEST(MeetOnHost, Rank0MayComeLater) {
  const std::string name = fresh_name();
  auto other = meet_later({.rank = 1, .world = 2, .name = name, .deadline = patience()});
  // No socket until here, and so its first attempts have failed, unless its thread starts as late as this.
  Host rank_0 = meet_on_host({.rank = 0, .world = 2, .name = name, .deadline = patience()}, -1);
  Host rank_1 = other.get();
  leave_both(rank_0, rank_1);
}

TEST(MeetOnHost, AloneNeedsNobody) {
  const int threads = count_own("task");
  const Host host = meet_on_host({.rank = 0, .world = 1, .name = "alone", .deadline = patience()}, -1);
  EXPECT_EQ(count_own("task"), threads);
  EXPECT_FALSE(host.descriptors[0]);
  EXPECT_EQ(host.control->all_gather("t", {0}, "blob", patience()), std::vector<std::string>{"blob"});
  host.control->fail({0, "first"});
  host.control->fail({0, "second"});
  EXPECT_TRUE(host.control->has_failed());
  EXPECT_EQ(text_of<PeerError>([&] { host.control->all_gather("t", {0}, "blob", patience()); }), "first");
}

TEST(MeetOnHost, WithoutRank0TheOthersSayThatItDidNotCome) {
  const std::string name = fresh_name();
  const std::string text = text_of<TimeoutError>(
      [&] { meet_on_host({.rank = 3, .world = 4, .name = name, .deadline = in_ms(200)}, -1); });
  EXPECT_THAT(text,
              AllOf(StartsWith(fmt::format("meeting {} on rank 3: rank 0 did not come within 0.", name)),
                    HasSubstr("; hint: ")));
}

TEST(MeetOnHost, AtItsDeadlineRank0NamesThoseWhoDidNotComeToAllWhoDid) {
  const std::string name = fresh_name();
  const auto deadline = in_ms(1500);
  run_ranks(5, [&](int rank) {
    if (rank == 1 || rank == 4) return;
    try {
      meet_on_host({.rank = rank, .world = 5, .name = name, .deadline = deadline}, -1);
      ADD_FAILURE() << "it came back";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), AllOf(StartsWith(fmt::format("meeting {} on rank {}: ", name, rank)),
                                      HasSubstr("ranks 1 and 4 did not come within 1.")));
      EXPECT_EQ(error.peer, 1);
    }
  });
  EXPECT_FALSE(is_bound(name));
}

TEST(MeetOnHost, AnotherWorldSizeFailsTheMeetingByName) {
  const std::string name = fresh_name();
  run_ranks(2, [&](int rank) {
    const int world = rank == 0 ? 3 : 4;
    const std::string text = text_of<PeerError>(
        [&] { meet_on_host({.rank = rank, .world = world, .name = name, .deadline = patience()}, -1); });
    EXPECT_THAT(text, AllOf(StartsWith(fmt::format("meeting {} on rank {}: ", name, rank)),
                            HasSubstr(fmt::format(
                                "rank 1 (pid {}) came with world size 4, rank 0 has 3; hint: ", getpid()))));
  });
}

TEST(MeetOnHost, ARankThatComesTwiceFailsTheMeetingByName) {
  const std::string name = fresh_name();
  run_ranks(3, [&](int process) {  // the third is rank 1 again; rank 2 never comes
    const int rank = process == 2 ? 1 : process;
    const std::string text = text_of<PeerError>(
        [&] { meet_on_host({.rank = rank, .world = 3, .name = name, .deadline = patience()}, -1); });
    EXPECT_THAT(text, HasSubstr(fmt::format(
                          "rank 1 (pid {0}) came, but there is rank 1 (pid {0}) already; hint: ", getpid())));
  });
}

TEST(MeetOnHost, ASecondRank0IsToldTheSocketsName) {
  const std::string name = fresh_name();
  auto first = meet_later({.rank = 0, .world = 2, .name = name, .deadline = patience()});
  ASSERT_TRUE(eventually([&] { return is_bound(name); }));
  EXPECT_THAT(text_of<UsageError>(
                  [&] { meet_on_host({.rank = 0, .world = 2, .name = name, .deadline = patience()}, -1); }),
              HasSubstr(fmt::format("the socket @{} is taken: another process meets there as rank 0",
                                    socket_name(geteuid(), name))));
  Host rank_1 = meet_on_host({.rank = 1, .world = 2, .name = name, .deadline = patience()}, -1);
  Host rank_0 = first.get();
  leave_both(rank_0, rank_1);
}

TEST(MeetOnHost, RefusesARankOutOfRange) {
  const auto refusal = [](int rank, int world, const std::string& name) {
    return text_of<UsageError>(
        [&] { meet_on_host({.rank = rank, .world = world, .name = name, .deadline = patience()}, -1); });
  };
  EXPECT_THAT(refusal(4, 4, "n"), HasSubstr("rank 4 of world size 4, expected 0 to 3"));
  EXPECT_THAT(refusal(-1, 4, "n"), HasSubstr("rank -1 of world size 4"));
  EXPECT_THAT(refusal(0, 0, "n"), HasSubstr("world size 0, expected 1 to"));
  EXPECT_THAT(refusal(0, 2, ""), HasSubstr("has no name"));
}

TEST(MeetOnHost, Rank0RefusesARankOutOfRangeThatComesAnyway) {
  const std::string name = fresh_name();
  auto rank_0 = meet_later({.rank = 0, .world = 2, .name = name, .deadline = patience()});
  ASSERT_TRUE(eventually([&] { return is_bound(name); }));
  const launch::UniqueFd fd = knock(name);
  send_bytes(fd.get(), hello_of(7, 2, name));
  EXPECT_THAT(text_of<PeerError>([&] { rank_0.get(); }),
              HasSubstr(fmt::format("rank 7 (pid {}) came, but ranks go from 0 to 1; hint: ", getpid())));
}

TEST(MeetOnHost, GarbageOfThisUserDoesNoHarm) {
  const std::string name = fresh_name();
  auto first = meet_later({.rank = 0, .world = 2, .name = name, .deadline = patience()});
  ASSERT_TRUE(eventually([&] { return is_bound(name); }));
  const launch::UniqueFd silent = knock(name);
  const launch::UniqueFd loud = knock(name);
  send_bytes(loud.get(), std::string(4096, 'x'));
  EXPECT_TRUE(is_closed_by_peer(loud.get()));
  Host rank_1 = meet_on_host({.rank = 1, .world = 2, .name = name, .deadline = patience()}, -1);
  Host rank_0 = first.get();
  leave_both(rank_0, rank_1);
}

TEST(MeetOnHost, ARankThatDiesBeforeAllHaveComeFailsTheMeetingByName) {
  const std::string name = fresh_name();
  auto rank_0 = meet_later({.rank = 0, .world = 4, .name = name, .deadline = patience()});
  ASSERT_TRUE(eventually([&] { return is_bound(name); }));
  send_bytes(knock(name).get(), hello_of(2, 4, name));  // and closes
  const std::string gone =
      fmt::format("rank 2 (pid {}) is gone: its connection ended before all ranks had come", getpid());
  EXPECT_THAT(text_of<PeerError>([&] { rank_0.get(); }), HasSubstr(gone));
}

TEST(MeetOnHost, ARank0ThatEndsBeforeAllHaveComeIsNoticed) {
  const std::string name = fresh_name();
  launch::UniqueFd listener = listen_on_host(name);
  auto rank_1 = meet_later({.rank = 1, .world = 3, .name = name, .deadline = patience()});
  const launch::UniqueFd accepted = accept_one(listener.get());
  listener.reset();
  EXPECT_EQ(receive_bytes(accepted.get(), transport::kHelloBytes), hello_of(1, 3, name));
  shutdown(accepted.get(), SHUT_RDWR);
  EXPECT_THAT(text_of<PeerError>([&] { rank_1.get(); }),
              HasSubstr("rank 0 ended the meeting without a word; hint: it died"));
}

TEST(MeetOnHost, AFailedMeetingLeavesNothing) {
  const auto fail_to_meet = [] {
    const std::string name = fresh_name();
    const auto deadline = in_ms(100);
    run_ranks(2, [&](int rank) {
      const auto own = make_memfd("memory");
      EXPECT_THROW(meet_on_host({.rank = rank, .world = 3, .name = name, .deadline = deadline}, own.get()),
                   TimeoutError);
    });
  };
  fail_to_meet();
  const int descriptors = count_own("fd");
  const int threads = count_own("task");
  fail_to_meet();
  EXPECT_EQ(count_own("fd"), descriptors);
  EXPECT_TRUE(eventually([&] { return count_own("task") == threads; }));
}

}  // namespace
}  // namespace lockstep::test
