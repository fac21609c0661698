// Strangers at the ports of a job between hosts.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "comms/between_hosts.h"
#include "lockstep/error.h"
#include "support/host_sockets.h"
#include "transport/gloo_wire.h"
#include "transport/pair_proof.h"
#include "transport/star.h"

namespace lockstep::test {
namespace {

using launch::UniqueFd;
using std::chrono::seconds;
using testing::AnyOf;
using testing::HasSubstr;

/// Sends all of it, or what the other side takes before it closes.
void pour(const UniqueFd& socket, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t sent = send(socket.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return;
    at += static_cast<size_t>(sent);
  }
}

class BetweenHostsStrangers : public BetweenHosts {};

TEST_F(BetweenHostsStrangers, AtTheRendezvousDoNoHarm) {
  std::vector<UniqueFd> strangers;
  const auto start = sign("strangers are there");
  expect_success(run([](Communicator& comm) { return check_sum(comm, 10'000); },
                     {.before =
                          [&](const Identity& identity) {
                            if (identity.rank == 3) start.await();
                          },
                      .meanwhile =
                          [&](const std::vector<int>&) {
                            const auto knock = [&] {
                              return strangers.emplace_back(connect_between(hosts(), 1, 0, 29501)).get() >= 0;
                            };
                            EXPECT_TRUE(eventually(knock)) << "one who says nothing";
                            EXPECT_TRUE(knock());
                            pour(strangers.back(), "GET / HTTP/1.1\r\n\r\n");
                            EXPECT_TRUE(knock());
                            pour(strangers.back(), std::string(1 << 20, '\xff'));
                            start.give();
                          }}));
}

/// A message of Gloo's own: its size, then its kind, then zeros.
std::string message_of_gloo(char kind) {
  std::string bytes(48, '\0');
  bytes[0] = 48;
  bytes[8] = kind;
  return bytes;
}

/// Two ranks that connect by Gloo while a stranger at the port of one of them says something.
class BetweenHostsDataPort : public BetweenHosts {
 protected:
  std::vector<Ended> connect_beside_stranger(const std::string& bytes) {
    const std::vector<Sign> ready = {sign("ready0"), sign("ready1")};
    const std::vector<Sign> cards = {sign("card0"), sign("card1")};
    const auto start = sign("the stranger is there");
    UniqueFd stranger;
    return run_bare_processes(
        2,
        [&](int rank) -> std::string {
          const auto own = static_cast<size_t>(rank);
          hosts().enter(rank);
          transport::GlooWire wire(rank, 2, Hosts::address(rank), seconds(60));
          std::ofstream(cards[own].file()) << wire.addresses() << std::flush;
          ready[own].give();
          start.await();
          wire.connect({read_file(cards[0].file()), read_file(cards[1].file())});
          const auto control = transport::make_lone_control();
          transport::prove_pairs(wire, *control, rank, 2, transport::key_of("known"),
                                 transport::Control::Clock::now() + seconds(1));
          return "met";
        },
        [&](const std::vector<int>&) {
          for (const auto& one : ready) EXPECT_TRUE(one.await());
          for (const auto& where : listeners_on(hosts(), 0)) {
            stranger = connect_between(hosts(), 1, 0, std::stoi(where.substr(where.find(':') + 1)));
            pour(stranger, bytes);
          }
          EXPECT_TRUE(stranger);
          start.give();
        });
  }
};

// Gloo of Debian 12 takes whoever connects first; that of Debian 13 finds the right one.
const auto kMetOrFailedClearly = AnyOf("met", HasSubstr("a stranger took its connection"));

TEST_F(BetweenHostsDataPort, AStrangerWhoSaysNothingMakesTheSetUpFailClearlyIfAnything) {
  for (const auto& rank : connect_beside_stranger("")) EXPECT_THAT(rank.text, kMetOrFailedClearly);
}

TEST_F(BetweenHostsDataPort, GarbageMakesTheSetUpFailClearlyIfAnything) {
  for (const auto& rank : connect_beside_stranger(std::string(1 << 16, '\xff')))
    EXPECT_THAT(rank.text, kMetOrFailedClearly);
}

TEST_F(BetweenHostsDataPort, AMessageForABufferThatNobodyHasMakesTheSetUpFailClearlyIfAnything) {
  for (const auto& rank : connect_beside_stranger(message_of_gloo(0)))
    EXPECT_THAT(rank.text, kMetOrFailedClearly);
}

// What cannot be mended from here: Gloo's thread throws, and nobody can catch it there.
TEST_F(BetweenHostsDataPort, DataThatNobodyAwaitsEndsOneProcessAtMost) {
  const auto ended = connect_beside_stranger(message_of_gloo(1));
  if (WIFSIGNALED(ended[0].status)) {
    EXPECT_EQ(WTERMSIG(ended[0].status), SIGABRT);
  } else {
    EXPECT_THAT(ended[0].text, kMetOrFailedClearly);
  }
  EXPECT_THAT(ended[1].text, kMetOrFailedClearly);
}

}  // namespace
}  // namespace lockstep::test
