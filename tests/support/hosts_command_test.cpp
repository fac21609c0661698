// tools/hosts: a command on every host, its exit code, and nothing left however it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "support/child.h"
#include "support/hosts.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

class HostsCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!Hosts::why_not().empty()) GTEST_SKIP() << Hosts::why_not();
  }
};

std::vector<std::string> on_hosts(const std::vector<std::string>& flags, const std::string& script) {
  std::vector<std::string> command = {LOCKSTEP_HOSTS};
  command.insert(command.end(), flags.begin(), flags.end());
  command.insert(command.end(), {"--", "sh", "-c", script});
  return command;
}

TEST_F(HostsCommand, TellsEveryHostWhoItIs) {
  Child job(on_hosts({"--hosts", "3", "--rate", "1gbit"},
                     "echo $NODE_RANK of $NNODES, $MASTER_ADDR:$MASTER_PORT, token ${#LOCKSTEP_TOKEN}"));
  EXPECT_EQ(job.wait(), 0) << job.errors();
  for (const char* host : {"0", "1", "2"}) {
    EXPECT_THAT(job.output(), HasSubstr(std::string(host) + " of 3, 10.77.0.1:29500, token 32\n"));
  }
}

TEST_F(HostsCommand, EndsWithTheCodeOfTheFirstHostThatFails) {
  Child job(on_hosts({}, "[ $NODE_RANK = 0 ] || exit 7; exec sleep 1000"));
  EXPECT_EQ(job.wait(), 7);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(HostsCommand, KillsWhatDoesNotListenWhenAskedTwice) {
  Child job(on_hosts({"--hosts", "1"},
                     "trap 'echo deaf' INT; setsid sleep 1000 & echo ready; while :; do wait; done"));
  ASSERT_TRUE(eventually([&] { return job.output() == "ready\n"; }));
  job.send(SIGINT);
  ASSERT_TRUE(eventually([&] { return job.output() == "ready\ndeaf\n"; }));
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(HostsCommand, LeavesNothingHoweverItIsEnded) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    Child job(on_hosts({}, "setsid sleep 1000 & echo ready; wait"));
    ASSERT_TRUE(eventually([&] { return job.output() == "ready\nready\n"; }));
    job.send(signal);
    EXPECT_EQ(job.wait(), 128 + signal);
    EXPECT_TRUE(job.leaves_nothing()) << signal;
  }
}

TEST_F(HostsCommand, RefusesWhatItDoesNotKnow) {
  Child flag({LOCKSTEP_HOSTS, "--host", "2", "--bandwidth", "1gbit", "true"});
  EXPECT_EQ(flag.wait(), 2);
  EXPECT_THAT(flag.errors(), HasSubstr("--bandwidth: no such flag"));
  Child number({LOCKSTEP_HOSTS, "--hosts", "many", "true"});
  EXPECT_EQ(number.wait(), 2);
  EXPECT_THAT(number.errors(), HasSubstr("--hosts"));
  Child rate({LOCKSTEP_HOSTS, "--rate", "fast", "true"});
  EXPECT_EQ(rate.wait(), 1);
  EXPECT_THAT(rate.errors(), HasSubstr("fast"));
  Child program({LOCKSTEP_HOSTS, "/nowhere/program"});
  EXPECT_EQ(program.wait(), 127);
}

}  // namespace
}  // namespace lockstep::test
