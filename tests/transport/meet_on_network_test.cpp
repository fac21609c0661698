// How ranks meet over the network, and how strangers fare meanwhile. Ranks are threads.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include "launch/ports.h"
#include "lockstep/error.h"
#include "support/child.h"
#include "transport/addresses.h"
#include "transport/bytes.h"
#include "transport/control.h"
#include "transport/frames.h"
#include "transport/proof.h"
#include "transport/ranks.h"
#include "transport/raw.h"

namespace lockstep::test {
namespace {

using launch::UniqueFd;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using transport::Claim;
using transport::meet_on_network;
using transport::MeetOptions;

/// A job of two over the network: rank 0 waits in a thread, strangers try their luck, rank 1 comes at last.
class MeetOnNetwork : public ::testing::Test {
 protected:
  void SetUp() override {
    do {
      port = launch::find_free_port();
      rank_0 = std::async(std::launch::async, [this] { return meet(0); });
    } while (!is_listening());
  }

  /// False if another program took the port first.
  bool is_listening() {
    EXPECT_TRUE(eventually([&] {
      return !listeners(port).empty() ||
             rank_0.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }));
    return rank_0.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }

  MeetOptions options(int rank) const {
    return {.rank = rank, .world = 2, .name = name, .deadline = patience()};
  }
  std::unique_ptr<Control> meet(int rank) const {
    return meet_on_network(options(rank), network_at(port, name));
  }
  std::string refusal_of_rank_1(const std::string& token) const {
    return text_of<Error>([&] { meet_on_network(options(1), network_at(port, token)); });
  }

  /// The honest ranks meet and part.
  void expect_meeting() {
    const auto control_1 = meet(1);
    const auto control_0 = rank_0.get();
    run_ranks(2, [&](int rank) {
      const auto& control = rank == 0 ? control_0 : control_1;
      EXPECT_EQ(control->all_gather("hello", {0, 1}, "x", patience()).size(), 2u);
      control->leave(patience());
      EXPECT_FALSE(control->has_failed());
    });
  }

  /// Only so that what waits ends.
  void TearDown() override {
    if (!rank_0.valid()) return;
    EXPECT_NO_THROW(expect_meeting());
  }

  Claim claim(std::uint32_t rank) const {
    return {.rank = rank, .world = 2, .pid = getpid(), .name = transport::digest(name)};
  }
  /// A bare connection that has read rank 0's challenge.
  UniqueFd connect_and_hear(transport::Nonce& nonce) const {
    UniqueFd fd = connect_to_port(port);
    const auto heard = transport::read_challenge(receive_bytes(fd.get(), transport::kChallengeBytes));
    EXPECT_TRUE(heard.has_value());
    if (heard) nonce = *heard;
    return fd;
  }

  const std::string name = fresh_name();  ///< And token.
  int port = 0;
  std::future<std::unique_ptr<Control>> rank_0;
};

TEST_F(MeetOnNetwork, ListensOnTheNamedAddressAloneAndNoLongerThanItMust) {
  EXPECT_EQ(listeners(port), fmt::format("0100007F:{:04X}\n", port));
  const auto control_1 = meet(1);
  const auto control_0 = rank_0.get();
  EXPECT_EQ(listeners(port), "");
  run_ranks(2, [&](int rank) { (rank == 0 ? control_0 : control_1)->leave(patience()); });
}

TEST_F(MeetOnNetwork, AWrongTokenIsTurnedAwayAndTheJobGoesOn) {
  for (const char* token : {"wrong", "x"}) {
    EXPECT_THAT(refusal_of_rank_1(token),
                AllOf(StartsWith(fmt::format(
                          "meeting {} on rank 1: what listens on 127.0.0.1:{} did not prove", name, port)),
                      HasSubstr("the tokens differ"), HasSubstr("; hint: export the same LOCKSTEP_TOKEN")));
  }
  expect_meeting();
}

TEST_F(MeetOnNetwork, GarbageIsTurnedAwayAndTheJobGoesOn) {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, 'x'), std::string(256, '\0'),
        std::string(transport::kMagic) + "\xff", std::string(8, '\xff'),
        transport::start_greeting(transport::Greeting::kProof) + std::string(100000, '\xff')}) {
    const UniqueFd fd = connect_to_port(port);
    send_bytes(fd.get(), garbage);
    shutdown(fd.get(), SHUT_WR);
    EXPECT_TRUE(is_closed_by_peer(fd.get()));
  }
  expect_meeting();
}

TEST_F(MeetOnNetwork, ThoseWhoSayNothingDoNotKeepOthersOut) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) {  // more than rank 0 listens to
    silent.push_back(connect_to_port(port));
    if (i % 2 == 0) send_bytes(silent.back().get(), std::string(transport::kMagic.substr(0, 1)));
  }
  expect_meeting();
}

TEST_F(MeetOnNetwork, OneWhoSaysNothingIsClosed) {
  const UniqueFd fd = connect_to_port(port);
  send_bytes(fd.get(), "l");
  EXPECT_TRUE(is_closed_by_peer(fd.get()));
  expect_meeting();
}

TEST_F(MeetOnNetwork, AProofOfAnotherMeetingIsTurnedAway) {
  transport::Nonce first;
  transport::Nonce second;
  const UniqueFd one = connect_and_hear(first);
  const UniqueFd other = connect_and_hear(second);
  EXPECT_NE(first, second);
  const auto key = transport::key_of(name);
  send_bytes(other.get(), transport::make_proof(key, first, second, claim(1)));
  EXPECT_TRUE(is_closed_by_peer(other.get()));
  expect_meeting();
}

TEST_F(MeetOnNetwork, AClientThatSendsBackTheChallengeIsTurnedAway) {
  transport::Nonce nonce;
  const UniqueFd fd = connect_and_hear(nonce);
  const std::string zeros(sizeof(transport::Mac), '\0');
  send_bytes(fd.get(), transport::start_greeting(transport::Greeting::kProof) +
                           std::string(nonce.begin(), nonce.end()) + encode(claim(1)) + zeros);
  EXPECT_TRUE(is_closed_by_peer(fd.get()));
  expect_meeting();
}

TEST_F(MeetOnNetwork, AnotherJobsRankWithThisToken) {
  MeetOptions other = options(1);
  other.name = "another job";
  EXPECT_THAT(text_of<PeerError>([&] { meet_on_network(other, network_at(port, name)); }),
              HasSubstr("rank 0 refused: this is another meeting; hint: "));
  expect_meeting();
}

TEST_F(MeetOnNetwork, AnotherWorldSizeFailsTheMeetingByName) {
  MeetOptions other = options(3);
  other.world = 4;
  const std::string why =
      fmt::format("rank 3 (pid {} at 127.0.0.1) came with world size 4, rank 0 has 2", getpid());
  EXPECT_THAT(text_of<PeerError>([&] { meet_on_network(other, network_at(port, name)); }), HasSubstr(why));
  EXPECT_THAT(text_of<PeerError>([&] { rank_0.get(); }), HasSubstr(why));
}

TEST_F(MeetOnNetwork, ASecondRank0IsToldThatTheAddressIsTaken) {
  EXPECT_THAT(text_of<UsageError>([&] { meet(0); }),
              HasSubstr(fmt::format("cannot listen on 127.0.0.1:{}: Address already in use; hint: ", port)));
  expect_meeting();
}

TEST_F(MeetOnNetwork, AnOversizeFrameOfARankIsTheJobsFailureByName) {
  transport::Nonce nonce_0;
  const UniqueFd fd = connect_and_hear(nonce_0);
  const auto key = transport::key_of(name);
  send_bytes(fd.get(), transport::make_proof(key, nonce_0, transport::random_nonce(), claim(1)));
  EXPECT_EQ(receive_bytes(fd.get(), transport::kAnswerBytes).size(), transport::kAnswerBytes);
  const auto control_0 = rank_0.get();
  send_bytes(fd.get(), "\xff\xff\xff\xff");
  EXPECT_TRUE(eventually([&] { return control_0->has_failed(); }));
  EXPECT_EQ(control_0->failure()->peer, 1);
  EXPECT_THAT(
      control_0->failure()->text,
      HasSubstr(fmt::format("rank 1 (pid {} at 127.0.0.1) broke the control plane's protocol: a frame of "
                            "4294967295 bytes",
                            getpid())));
}

TEST(NetworkOptions, AreRefusedByNameAndValue) {
  const auto refusal = [](const transport::NetworkOptions& network, int rank) {
    return text_of<UsageError>(
        [&] { meet_on_network({.rank = rank, .world = 2, .name = "job", .deadline = patience()}, network); });
  };
  for (const int rank : {0, 1}) {
    for (const char* address : {"0.0.0.0", "::", "0", "::ffff:0.0.0.0"}) {
      EXPECT_THAT(refusal({.address = address, .port = 29500, .token = "t"}, rank),
                  HasSubstr(fmt::format("address '{}' stands for every address of the host", address)));
    }
    EXPECT_THAT(
        refusal({.address = "127.0.0.1", .port = 29500, .token = ""}, rank),
        AllOf(HasSubstr("there is no token"), HasSubstr("; hint: "), HasSubstr("export LOCKSTEP_TOKEN=")));
    EXPECT_THAT(refusal({.address = "127.0.0.1", .port = 0, .token = "t"}, rank),
                HasSubstr("port 0, expected 1 to"));
    EXPECT_THAT(refusal({.address = "", .port = 1, .token = "t"}, rank), HasSubstr("rank 0 has no address"));
    EXPECT_THAT(refusal({.address = "127.0.0.1.5", .port = 1, .token = "t"}, rank),
                HasSubstr("address '127.0.0.1.5': "));
  }
  EXPECT_THAT(refusal({.address = "192.0.2.1", .port = 29500, .token = "t"}, 0),
              HasSubstr("cannot listen on 192.0.2.1:29500: Cannot assign requested address"));
}

TEST(NetworkDeadline, NamesRank0OrThoseWhoDidNotCome) {
  const int port = launch::find_free_port();
  const std::string name = fresh_name();
  EXPECT_THAT(text_of<TimeoutError>([&] {
                meet_on_network({.rank = 1, .world = 3, .name = name, .deadline = in_ms(200)},
                                network_at(port, name));
              }),
              AllOf(StartsWith(fmt::format("meeting {} on rank 1: rank 0 did not come within 0.", name)),
                    HasSubstr(fmt::format(" s: 127.0.0.1:{}: Connection refused; hint: ", port))));
  const auto deadline = in_ms(1500);
  run_ranks(2, [&](int rank) {
    EXPECT_THAT(
        text_of<TimeoutError>([&] {
          meet_on_network({.rank = rank, .world = 3, .name = name, .deadline = deadline},
                          network_at(port, name));
        }),
        AllOf(StartsWith(fmt::format("meeting {} on rank {}: ", name, rank)),
              HasSubstr("rank 2 did not come within 1."),
              HasSubstr(fmt::format("listening on 127.0.0.1:{}, which only this host can reach", port))));
  });
}

TEST(TcpSockets, NoticeAHostThatIsGone) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  transport::configure_tcp(fd.get());
  const auto option = [&](int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    getsockopt(fd.get(), level, name, &value, &size);
    return value;
  };
  EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 10000);
  EXPECT_LE(option(IPPROTO_TCP, TCP_KEEPIDLE) +
                option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT),
            10);
}

}  // namespace
}  // namespace lockstep::test
