// Hosts that are network namespaces: what they reach, how their links break, and that they go.
#include "support/hosts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <set>
#include <sstream>

#include "support/child.h"
#include "support/host_sockets.h"

namespace lockstep::test {
namespace {

using launch::UniqueFd;
using testing::ElementsAre;

class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!Hosts::why_not().empty()) GTEST_SKIP() << Hosts::why_not();
  }
};

/// The names of the network interfaces that a process sees after `enter`.
std::set<std::string> links(const std::function<void()>& enter = {}) {
  Child look({"cat", "/proc/self/net/dev"}, {.before = enter});
  if (look.wait() != 0) throw std::runtime_error(look.errors());
  std::istringstream lines(look.output());
  std::set<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;  // a headline
    const size_t start = line.find_first_not_of(' ');
    found.insert(line.substr(start, colon - start));
  }
  return found;
}

/// A connection from host 1 to host 0.
struct Connected {
  UniqueFd from, to;

  explicit Connected(const Hosts& hosts) {
    int port = 0;
    const UniqueFd listener = listen_on(hosts, 0, port);
    from = connect_between(hosts, 1, 0, port);
    if (from) to.reset(accept(listener.get(), nullptr, nullptr));
  }
};

bool becomes_readable(const UniqueFd& socket, int patience_ms) {
  pollfd waiting = {.fd = socket.get(), .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, patience_ms) > 0;
}

TEST_F(HostsTest, ReachEachOther) {
  const Hosts hosts({.count = 3});
  for (const int from : {1, 2}) {
    int port = 0;
    const UniqueFd listener = listen_on(hosts, 0, port);
    EXPECT_TRUE(connect_between(hosts, from, 0, port));
    EXPECT_FALSE(connect_between(hosts, from, from, port)) << "nobody listens there";
  }
}

TEST_F(HostsTest, AreNotSeenFromOutside) {
  const auto before = links();
  const Hosts hosts({});
  EXPECT_EQ(links(), before);
  EXPECT_THAT(links([&] { hosts.enter(1); }), ElementsAre("eth0", "lo"));
}

TEST_F(HostsTest, LosePacketsInSilenceWhileTheirLinkIsCut) {
  const Hosts hosts({});
  const Connected pair(hosts);
  ASSERT_TRUE(pair.to);
  hosts.cut(1);
  ASSERT_EQ(send(pair.from.get(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_FALSE(becomes_readable(pair.to, 300)) << "neither data nor an end";
  EXPECT_FALSE(becomes_readable(pair.from, 0));
  hosts.mend(1);
  EXPECT_TRUE(becomes_readable(pair.to, 60'000)) << "TCP sends it again";
  char byte = 0;
  EXPECT_EQ(recv(pair.to.get(), &byte, 1, 0), 1);
}

TEST_F(HostsTest, ShapeTheirLinks) {
  const Hosts hosts({.rate = "10mbit"});
  const Connected pair(hosts);
  ASSERT_TRUE(pair.to);
  const std::string bytes(500'000, 'x');
  const auto start = std::chrono::steady_clock::now();
  const pid_t writer = fork();
  if (writer == 0) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = send(pair.from.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) break;
      at += static_cast<size_t>(sent);
    }
    _exit(0);
  }
  std::string received(bytes.size(), ' ');
  EXPECT_EQ(recv(pair.to.get(), received.data(), received.size(), MSG_WAITALL),
            static_cast<ssize_t>(bytes.size()));
  waitpid(writer, nullptr, 0);
  // 0.3 s for all but the burst; a link that is not shaped takes a millisecond.
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
}

TEST_F(HostsTest, GoWithWhoeverMadeThem) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can look into the namespace of another user namespace";
  for (const bool by_exception : {false, true}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const UniqueFd reading(ends[0]);
    UniqueFd writing(ends[1]);
    const pid_t holder = fork();
    if (holder == 0) {
      const auto hold = [&] {
        const Hosts hosts({});
        const std::string path = hosts.path(0);
        if (write(writing.get(), path.c_str(), path.size()) < 0) _exit(1);
        raise(SIGSTOP);
        if (by_exception) throw std::runtime_error("a test fails");
        pause();
      };
      try {
        hold();
      } catch (const std::exception&) {
        raise(SIGSTOP);  // still there, but its hosts are gone
      }
      _exit(0);
    }
    int status = 0;
    waitpid(holder, &status, WUNTRACED);
    char path[256] = {};
    ASSERT_GT(read(reading.get(), path, sizeof path - 1), 0);
    const UniqueFd network(open(path, O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(network);
    const auto look = [&] { return links([&] { setns(network.get(), CLONE_NEWNET); }); };
    EXPECT_THAT(look(), ElementsAre("eth0", "lo"));
    if (by_exception) {
      kill(holder, SIGCONT);
      waitpid(holder, &status, WUNTRACED);
    } else {
      kill(holder, SIGKILL);
    }
    // This namespace is held here; its cable went with the switch, which nobody holds any more.
    EXPECT_TRUE(eventually([&] { return look() == std::set<std::string>{"lo"}; }));
    kill(holder, SIGKILL);
    waitpid(holder, nullptr, 0);
  }
}

}  // namespace
}  // namespace lockstep::test
