// The engine `mpi` between hosts that are network namespaces: mpirun starts its daemon on the other one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "support/child.h"
#include "support/hosts.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

class MpiBetweenHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0)
      GTEST_SKIP() << "only root can enter a namespace by its file, as mpirun's agent does here";
    if (!Hosts::why_not().empty()) GTEST_SKIP() << Hosts::why_not();
    make_hosts({});
  }

  void make_hosts(const Hosts::Options& options) {
    hosts_.emplace(options);
    // In place of ssh: `agent HOST COMMAND...`.
    std::ofstream(agent_) << "#!/bin/sh\nname=$1\nshift\nexec nsenter --net=" << hosts_->path(1)
                          << " unshare --uts sh -c \"hostname $name; $*\"\n";
    std::filesystem::permissions(agent_, std::filesystem::perms::owner_all);
  }

  /// mpirun on host 0 with one rank of the actor on each host.
  Child::Options on_host_0() const {
    return {.environment =
                {{"LOCKSTEP_ENGINE", ""},
                 {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                 {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                 {"OMPI_MCA_plm_rsh_agent", agent_.string()},
                 {"PRTE_MCA_plm_ssh_agent", agent_.string()},  // Open MPI 5
                 // mpirun sees one rank a host and lets each spin; here they share cores with other tests.
                 {"OMPI_MCA_mpi_yield_when_idle", "1"},
                 {"OMPI_MCA_btl", "tcp,self"}},
            .before = [this] {
              hosts_->enter(0);
              // MPI tells hosts apart by their names; these need no name service.
              const std::string name = Hosts::address(0);
              if (unshare(CLONE_NEWUTS) != 0 || sethostname(name.c_str(), name.size()) != 0) _exit(126);
            }};
  }
  static std::vector<std::string> actor(const std::vector<std::string>& part) {
    std::vector<std::string> command = {
        "mpirun", "-n", "2", "--host", Hosts::address(0) + "," + Hosts::address(1), LOCKSTEP_ACTOR};
    command.insert(command.end(), part.begin(), part.end());
    return command;
  }

 private:
  std::optional<Hosts> hosts_;
  TemporaryFolder folder_;
  const std::filesystem::path agent_ = folder_ / "agent";
};

TEST_F(MpiBetweenHosts, IsTheEngineThatMpirunChooses) {
  Child job(actor({"engine"}), on_host_0());
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_THAT(job.output(), HasSubstr("mpi\n"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(MpiBetweenHosts, KeepsTheContract) {
  Child job(actor({"contract"}), on_host_0());
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_EQ(job.output(), "");
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(MpiBetweenHosts, ACallMayTakeLongerThanTheTimeoutWhileItMoves) {
  make_hosts({.rate = "8mbit", .latency = "500ms"});
  Child job(actor({"slow", "2500000"}), on_host_0());
  EXPECT_EQ(job.wait(), 0) << job.errors();
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(MpiBetweenHosts, AKilledRankEndsTheJobWithNothingLeft) {
  for (const char* what : {"die-before", "die-within"}) {
    Child job(actor({what, "100000"}), on_host_0());
    EXPECT_NE(job.wait(), 0) << what;
    EXPECT_TRUE(job.leaves_nothing()) << what;
  }
}

}  // namespace
}  // namespace lockstep::test
