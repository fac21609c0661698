// The contract of collectives over Gloo's TCP, and who may take part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "comms/contract.h"
#include "comms/run_processes.h"
#include "launch/ports.h"
#include "lockstep/error.h"
#include "transport/gloo_wire.h"
#include "transport/pair_proof.h"
#include "transport/star.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

void expect_success(const std::vector<Ended>& ended) {
  for (const auto& rank : ended) {
    EXPECT_EQ(rank.status, 0);
    EXPECT_EQ(rank.text, "");
  }
}

class Gloo : public testing::TestWithParam<int> {};

TEST_P(Gloo, KeepsTheContract) {
  expect_success(run_processes(GetParam(), check_all, {.engine = "gloo"}));
}

INSTANTIATE_TEST_SUITE_P(Worlds, Gloo, testing::Values(1, 2, 3, 4, 5, 7, 8),
                         testing::PrintToStringParamName());

TEST(GlooMessages, CanBeTestedUntilTheyAreOver) {
  expect_success(run_processes(2,
                               [](Communicator& comm) -> std::string {
                                 for (const size_t count : {size_t{1}, size_t{200'000}}) {
                                   std::vector<float> out(count, 1.0F + static_cast<float>(comm.rank())),
                                       in(count);
                                   const Work sent = comm.isend(out, 1 - comm.rank());
                                   const Work received = comm.irecv(in, 1 - comm.rank());
                                   while (!received.is_completed() || !sent.is_completed())
                                     std::this_thread::yield();
                                   if (in.back() != 2.0F - static_cast<float>(comm.rank())) return "wrong";
                                 }
                                 return "";
                               },
                               {.engine = "gloo"}));
}

TEST(GlooMessages, MayBeWaitedForInAnyOrder) {
  expect_success(run_processes(2,
                               [](Communicator& comm) -> std::string {
                                 std::vector<float> first(1000, 1.0F), second(1000, 2.0F);
                                 if (comm.rank() == 0) {
                                   const Work one = comm.isend(first, 1), two = comm.isend(second, 1);
                                   two.wait();
                                   one.wait();
                                   return "";
                                 }
                                 std::vector<float> in_first(1000), in_second(1000);
                                 const Work one = comm.irecv(in_first, 0), two = comm.irecv(in_second, 0);
                                 two.wait();
                                 one.wait();
                                 return in_first == first && in_second == second ? "" : "out of order";
                               },
                               {.engine = "gloo"}));
}

/// What this process's TCP sockets are bound to, as /proc/net/tcp writes it: address in hexadecimal and
/// state.
std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::set<std::string> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >>
          inode;
      if (inodes.contains(inode)) found.insert(local.substr(0, local.find(':')) + " " + state);
    }
  }
  return found;
}

TEST(GlooPorts, OnOneHostAreOfTheLoopbackAddress) {
  for (const auto& rank : run_processes(3,
                                        [](Communicator& comm) {
                                          comm.barrier();
                                          std::string text;
                                          for (const auto& socket : own_sockets()) text += socket + "\n";
                                          comm.barrier();
                                          return text;
                                        },
                                        {.engine = "gloo"})) {
    // Established on 127.0.0.1; Gloo of Debian 13 also goes on listening there.
    EXPECT_THAT(rank.text, testing::AnyOf("0100007F 01\n", "0100007F 01\n0100007F 0A\n"));
  }
}

/// Every rank on a node of its own, as far as it knows.
void live_apart(Identity& identity, int port, const std::string& token) {
  identity.local_rank = 0;
  identity.local_world_size = 1;
  identity.node_rank = identity.rank;
  identity.nodes = identity.world_size;
  identity.master_addr = "127.0.0.1";
  identity.master_port = port;
  setenv("LOCKSTEP_TOKEN", token.c_str(), 1);
  unsetenv("LOCKSTEP_PORT");
}

TEST(GlooHosts, MeetOverTheNetworkByTheirToken) {
  const int port = launch::find_free_port() - 1;
  expect_success(run_processes(3, check_all, {.engine = "", .before = [port](Identity& identity) {
                                                live_apart(identity, port, "a secret");
                                              }}));
}

TEST(GlooHosts, AreRefusedWithoutAToken) {
  const auto ended = run_processes(2, check_all, {.engine = "gloo", .before = [](Identity& identity) {
                                                    live_apart(identity, 20'000, "");
                                                  }});
  for (const auto& rank : ended)
    EXPECT_THAT(rank.text, HasSubstr("hint: once, then with that value on every host: "
                                     "export LOCKSTEP_TOKEN=$(openssl rand -hex 32)"));
}

TEST(GlooHosts, ListenWhereTheyAreTold) {
  const int port = launch::find_free_port();
  const auto told = std::to_string(port);
  expect_success(run_processes(2,
                               [](Communicator& comm) -> std::string {
                                 comm.barrier();
                                 return "";
                               },
                               {.engine = "gloo", .before = [&](Identity& identity) {
                                  live_apart(identity, 1, "a secret");
                                  setenv("LOCKSTEP_PORT", told.c_str(), 1);
                                }}));
  const auto ended = run_processes(
      1, check_all, {.engine = "gloo", .before = [](Identity&) { setenv("LOCKSTEP_PORT", "http", 1); }});
  EXPECT_THAT(ended[0].text, HasSubstr("LOCKSTEP_PORT"));
}

TEST(GlooPairs, ThatDoNotKnowTheSecretAreRefused) {
  using std::chrono::seconds;
  transport::GlooWire first(0, 2, "127.0.0.1", seconds(10));
  transport::GlooWire second(1, 2, "127.0.0.1", seconds(10));
  const std::vector<std::string> addresses = {first.addresses(), second.addresses()};
  const auto prove = [&](transport::GlooWire& wire, int rank, const char* secret) -> std::string {
    const auto control = transport::make_lone_control();
    wire.connect(addresses);
    try {
      transport::prove_pairs(wire, *control, rank, 2, transport::key_of(secret),
                             transport::Control::Clock::now() + seconds(10));
    } catch (const PeerError& error) {
      return error.what();
    }
    return "";
  };
  std::string other;
  std::thread thread([&] { other = prove(second, 1, "guessed"); });
  const std::string own = prove(first, 0, "known");
  thread.join();
  EXPECT_THAT(own, HasSubstr("what answers in place of rank 1 does not know this job's secret"));
  EXPECT_THAT(other, HasSubstr("what answers in place of rank 0 does not know this job's secret"));
}

}  // namespace
}  // namespace lockstep::test
