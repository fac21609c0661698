// The flags of `lockstep run` as users type them: what each means, what is refused, and what the plan tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "launch/blas.h"
#include "launch/cpu.h"
#include "launch/launched.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;

Words run_words(Words flags, const std::string& program = "true") {
  flags.insert(flags.begin(), {LOCKSTEP_COMMAND, "run"});
  flags.insert(flags.end(), {"--", program});
  return flags;
}

Finished dry_run(Words flags, const launch::Environment& environment = {}) {
  flags.emplace_back("--dry-run");
  return run_to_end(run_words(flags), {.environment = environment});
}

/// Bad input ends with exit code 2, a text that holds `expected`, and nothing on standard output.
void expect_refusal(const Words& flags, const std::string& expected,
                    const launch::Environment& environment = {}) {
  const Finished ended = dry_run(flags, environment);
  EXPECT_EQ(ended.exit_code, 2) << expected;
  EXPECT_THAT(ended.errors, HasSubstr(expected));
  EXPECT_EQ(ended.output, "");
}

TEST(RunFlags, AnEmptyValueIsRefusedByName) {
  for (const char* flag :
       {"--nproc-per-node", "--nnodes", "--node-rank", "--master-addr", "--master-port", "--engine",
        "--ranks-filter", "--local-ranks-filter", "--rdzv-id", "--role", "--log-dir", "--env", "--json"}) {
    expect_refusal({flag, ""}, std::string(flag) + ": the value is empty; hint: ");
    expect_refusal({std::string(flag) + "="}, flag);
  }
  EXPECT_EQ(dry_run({"--env", "MINE="}).exit_code, 0);
  EXPECT_EQ(run_to_end({LOCKSTEP_COMMAND, "run", "--dry-run", "true", ""}).exit_code, 0);
}

TEST(RunFlags, FiltersCountLocalOrGlobalRanks) {
  const Words second_node = {"--nnodes",         "2", "--node-rank",   "1",
                             "--nproc-per-node", "2", "--master-addr", "127.0.0.1"};
  const auto shown = [&](const std::string& filter, const std::string& rank) {
    Words flags = second_node;
    flags.insert(flags.end(), {filter, rank});
    Child job(launched(flags, {"print", "result"}));
    EXPECT_EQ(job.wait(), 0) << job.errors();
    return job.output();
  };
  EXPECT_EQ(shown("--local-ranks-filter", "0"), "[1:2] result\n");
  EXPECT_EQ(shown("--local_ranks_filter", "1"), "[1:3] result\n");
  EXPECT_EQ(shown("--ranks-filter", "3"), "[1:3] result\n");
  EXPECT_EQ(shown("--ranks-filter", "0"), "");
}

TEST(RunFlags, EnvMayNotSayWhoARankIs) {
  for (const char* setting : {"RANK=0", "MASTER_PORT=5", "TORCHELASTIC_RESTART_COUNT=7", "LOCKSTEP_JOB_ID=x",
                              "GROUP_RANK=1", "SLURM_PROCID=1", "OMPI_COMM_WORLD_RANK=1"}) {
    expect_refusal({"--env", setting}, std::string("--env ") + setting);
  }
  expect_refusal({"--env", "MASTER_PORT=5"}, "hint: give --master-port");
  EXPECT_EQ(dry_run({"--env", "ROLE_NAME=trainer", "--env", "SLURM_CPUS_PER_TASK=2"}).exit_code, 0);
}

TEST(RunFlags, AnEngineIsCheckedWhereverItComesFrom) {
  expect_refusal({"--env", "LOCKSTEP_ENGINE=nccl"}, "--env LOCKSTEP_ENGINE nccl: there is no such engine");
  expect_refusal({"--env", "LOCKSTEP_ENGINE="}, "--env LOCKSTEP_ENGINE: '' is no engine; hint: ");
  expect_refusal({}, "LOCKSTEP_ENGINE: '' is no engine; hint: ", {{"LOCKSTEP_ENGINE", ""}});
  EXPECT_EQ(dry_run({"--env", "LOCKSTEP_ENGINE=shm"}).exit_code, 0);
}

TEST(RunFlags, AProgramThatCannotBeLookedAtIsRefusedByNameAndReason) {
  TemporaryFolder folder;
  std::filesystem::create_symlink("loop.py", folder / "loop.py");
  std::filesystem::create_directory(folder / "d.py");
  const auto expect = [&](const std::string& program, const std::string& reason) {
    Child job(run_words({}, program), {.folder = folder.path()});
    EXPECT_EQ(job.wait(), 2) << reason;
    EXPECT_THAT(job.errors(), AllOf(HasSubstr("lockstep run: program " + program + ": " + reason),
                                    Not(HasSubstr("filesystem error"))));
  };
  expect(std::string(300, 'x'), "not found on PATH");
  expect("./" + std::string(300, 'x'), "File name too long");
  expect(std::string(300, 'x') + ".py", "File name too long");
  expect("loop.py", "Too many levels of symbolic links");
  expect("d.py", "this is a folder");
  expect("none.py", "no such file");
}

/// What root may do beyond others is taken from it; others have it not.
void drop_capabilities() {
  for (const int capability : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_BIND_SERVICE}) {
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
}

TEST(RunFlags, AScriptInAFolderThatMayNotBeReadIsRefusedWithTheReason) {
  TemporaryFolder folder;
  write_file(folder / "closed/a.py", "");
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::none);
  const Finished ended = run_to_end(run_words({}, folder / "closed/a.py"), {.before = drop_capabilities});
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::owner_all);
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.errors, HasSubstr("closed/a.py: Permission denied"));
}

TEST(RunFlags, ADeletedCurrentFolderIsRefusedWithTheReason) {
  TemporaryFolder folder;
  const auto gone = folder / "gone";
  const Child::Options options = {.before = [&] {
    std::filesystem::create_directory(gone);
    std::filesystem::current_path(gone);
    std::filesystem::remove(gone);
  }};
  const Finished relative = run_to_end(run_words({}), options);
  EXPECT_EQ(relative.exit_code, 2);
  EXPECT_THAT(relative.errors, HasSubstr("lockstep run: --log-dir logs: No such file or directory; hint: "));
  EXPECT_EQ(run_to_end(run_words({"--log-dir", folder / "l", "--dry-run"}), options).exit_code, 0);
}

/// A TCP socket on 127.0.0.1 that listens as long as this lives.
class Server {
 public:
  Server() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = std::to_string(ntohs(address.sin_port));
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() { close(socket_); }

  const std::string& port() const { return port_; }

 private:
  int socket_;
  std::string port_;
};

TEST(RunFlags, APortInUseIsRefusedByWhatNamedIt) {
  const Server server;
  // "localhost" may be ::1 first: every address of the name counts.
  for (const char* address : {"127.0.0.1", "localhost"}) {
    const Finished ended =
        run_to_end(run_words({"--nnodes", "2", "--node-rank", "0", "--master-addr", address}),
                   {.environment = {{"MASTER_PORT", server.port()}}});
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.errors, HasSubstr("MASTER_PORT " + server.port() + ": in use on " + address));
    EXPECT_THAT(ended.errors, Not(HasSubstr("--master-port " + server.port())));
  }
}

TEST(RunFlags, APortThatOnlyRootMayHaveIsRefused) {
  int first_free_for_all = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> first_free_for_all;
  if (first_free_for_all < 2) GTEST_SKIP() << "every port is free for all here";
  const std::string port = std::to_string(first_free_for_all - 1);
  const Finished ended = run_to_end(
      run_words({"--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", port}),
      {.before = drop_capabilities});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.errors, HasSubstr("--master-port " + port + ": Permission denied on 127.0.0.1"));
}

TEST(RunFlags, NodeZeroMustHaveTheMastersAddress) {
  const Finished ended = run_to_end(
      run_words({"--nnodes", "2", "--node-rank", "0", "--master-addr", "192.0.2.1"}));  // RFC 5737: nobody's
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.errors, HasSubstr("--master-addr 192.0.2.1: not an address of this host"));
}

TEST(RunFlags, WhatIsNoHostNameIsRefusedOnEveryNode) {
  for (const char* node : {"0", "1"}) {
    expect_refusal({"--nnodes", "2", "--node-rank", node, "--master-addr", "a b"},
                   "--master-addr: 'a b' is not a host name or address; hint: ");
  }
  expect_refusal({}, "MASTER_ADDR: 'tcp://a' is not a host name", {{"MASTER_ADDR", "tcp://a"}});
}

TEST(RunFlags, AnEmptyCoretypeDoesNotKeepSlowKernels) {
  // The command beside a LibTorch part that tells what it was started with.
  TemporaryFolder folder;
  const std::filesystem::path command = LOCKSTEP_COMMAND;
  for (const char* name : {"lockstep", "lockstep-blas-probe"}) {
    std::filesystem::copy_file(command.parent_path() / name, folder / name);
  }
  write_file(folder / "lockstep-torch", "#!/bin/sh\necho \"coretype $OPENBLAS_CORETYPE\"\n");
  std::filesystem::permissions(folder / "lockstep-torch", std::filesystem::perms::owner_all);
  const Finished ended =
      run_to_end({(folder / "lockstep").string(), "eval", "run"},
                 {.environment = {{"OPENBLAS_CORETYPE", ""}, {"LD_LIBRARY_PATH", LOCKSTEP_FAKE_OPENBLAS}}});
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_EQ(ended.output, "coretype " + launch::best_coretype(launch::detect_cpu()) + "\n");
}

TEST(RunFlags, StandaloneTellsWhoAskedForMoreNodes) {
  expect_refusal({"--standalone", "--nnodes", "2"}, "--standalone with 2 nodes (flag --nnodes)");
  expect_refusal({"--standalone"}, "--standalone with 2 nodes (environment NNODES)", {{"NNODES", "2"}});
}

TEST(RunFlags, TorchrunsOwnFlagsAreCheckedThoughUnused) {
  expect_refusal({"--monitor-interval", "abc"}, "--monitor-interval: 'abc' is not a number");
  expect_refusal({"--redirects", "4"}, "--redirects: 4 is not between 0 and 3");
  expect_refusal({"--redirects", "1:3"}, "--redirects: 1 is not between 0 and 0");
  EXPECT_EQ(dry_run({"--redirects", "3", "--monitor-interval", "0.1"}).exit_code, 0);
  EXPECT_EQ(dry_run({"--nproc-per-node", "2", "--redirects", "0:1,1:2"}).exit_code, 0);
}

TEST(RunFlags, ThePlanQuotesWordsAsAShellReadsThem) {
  const Finished plan =
      run_to_end({LOCKSTEP_COMMAND, "run", "--dry-run", "/bin/echo", "a b", "c", "it's", ""});
  EXPECT_EQ(plan.exit_code, 0) << plan.errors;
  EXPECT_EQ(line_with(plan.output, "runs"), R"(  runs /bin/echo 'a b' c 'it'\''s' '')");
}

/// The long names of all flags in `lockstep run --help`.
Words flags_in_help() {
  const std::string help = run_to_end({LOCKSTEP_COMMAND, "run", "--help"}).output;
  const std::regex flag("\n +(-h,)?(--[a-z-]+)");
  Words names;
  for (std::sregex_iterator found(help.begin(), help.end(), flag), end; found != end; ++found) {
    names.push_back((*found)[2]);
  }
  return names;
}

TEST(RunFlags, EveryFlagMayBeSpelledWithUnderscores) {
  const std::map<std::string, std::string> values = {{"--nproc-per-node", "2"},
                                                     {"--nnodes", "1"},
                                                     {"--node-rank", "0"},
                                                     {"--master-addr", "127.0.0.1"},
                                                     {"--master-port", "1234"},
                                                     {"--max-restarts", "1"},
                                                     {"--grace", "1"},
                                                     {"--log-dir", "l"},
                                                     {"--tee", "0"},
                                                     {"--redirects", "0"},
                                                     {"--ranks-filter", "0"},
                                                     {"--local-ranks-filter", "0"},
                                                     {"--engine", "shm"},
                                                     {"--bind", "none"},
                                                     {"--env", "A=B"},
                                                     {"--rdzv-id", "x"},
                                                     {"--role", "x"},
                                                     {"--monitor-interval", "1"}};
  const Words names = flags_in_help();
  EXPECT_GT(names.size(), values.size());
  for (const std::string& name : names) {
    std::string underscored = name;
    std::replace(underscored.begin() + 2, underscored.end(), '-', '_');
    for (const std::string& spelled : {name, underscored}) {
      Words words = {LOCKSTEP_COMMAND, "run", "--dry-run"};
      if (spelled != "--dry-run" && spelled != "--dry_run") words.push_back(spelled);
      if (values.contains(name)) words.push_back(values.at(name));
      if (spelled == "--dry_run") words[2] = spelled;
      words.insert(words.end(), {"--", "true"});
      const Finished ended = run_to_end(words);
      EXPECT_EQ(ended.exit_code, 0) << spelled << ": " << ended.errors;
    }
  }
}

nlohmann::json plan_of(Words flags, const launch::Environment& environment = {}) {
  flags.emplace_back("--json");
  const Finished ended = dry_run(flags, environment);
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  return nlohmann::json::parse(ended.output);
}

nlohmann::json fact(const nlohmann::json& plan, const std::string& name) {
  for (const auto& row : plan.at("facts")) {
    if (row.at("name") == name) return row;
  }
  return {};
}

TEST(RunFlags, TheGracePeriodIsFiveSecondsUnlessAsked) {
  const auto usual = fact(plan_of({}), "grace seconds");
  EXPECT_EQ(usual.value("value", ""), "5");
  EXPECT_EQ(usual.value("origin", ""), "default");
  const auto asked = fact(plan_of({"--grace", "2.5"}), "grace seconds");
  EXPECT_EQ(asked.value("value", ""), "2.5");
  EXPECT_EQ(asked.value("origin", ""), "flag --grace");
}

TEST(RunFlags, OnOneNodeTheMastersPortIsFreeAndNobodyListensOnIt) {
  TemporaryFolder folder;
  Child job(launched({}, {"env", "MASTER_PORT", "await", folder / "bound"}));
  const auto log = job.folder() / "logs/rank_0/stdout.log";
  ASSERT_TRUE(eventually([&] { return read_file(log).ends_with("\n"); })) << job.errors();
  int port = 0;
  ASSERT_EQ(std::sscanf(read_file(log).c_str(), "MASTER_PORT=%d", &port), 1);
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);  // where a rendezvous of rank 0 binds
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(server, 1), 0);
  close(server);
  write_file(folder / "bound", "");
  EXPECT_EQ(job.wait(), 0);
}

TEST(RunFlags, EveryValueOfThePlanHasAKnownOrigin) {
  const std::regex known(
      "flag --[a-z-]+(: one per usable core)?|environment( [A-Z_]+)?|default|srun|mpirun|one node|the only "
      "node|"
      "random|attempt|log folder|rank|world size|ranks per node|place on this node|"
      "node rank(, by torchrun's name)?|nodes, by torchrun's name|master address and port|"
      "free now; nothing of Lockstep's opens it|assumed for the dry run: give --[a-z-]+|"
      "nodes \\* ranks per node = \\d+ \\* \\d+|"
      "node_rank \\* nproc_per_node \\+ local_rank = \\d+ \\* \\d+ \\+ \\d+|"
      "usable cores / ranks = \\d+ / \\d+, at least 1|affinity and CPU quota of this process|"
      "more ranks than cores|each rank gets its share of the cores|"
      "OpenBLAS .*|no OpenBLAS found: .*|OPENBLAS_CORETYPE=.* is the user's own setting");
  const auto check = [&](const nlohmann::json& plan) {
    const auto check_rows = [&](const nlohmann::json& rows) {
      for (const auto& row : rows) {
        EXPECT_TRUE(std::regex_match(row.at("origin").get<std::string>(), known)) << row.dump();
      }
    };
    check_rows(plan.at("facts"));
    check_rows(plan.at("removed"));
    for (const auto& rank : plan.at("ranks")) check_rows(rank.at("environment"));
  };
  check(plan_of({}));
  check(plan_of({"--nproc-per-node", "auto", "--max-restarts", "2", "--env", "A=B", "--role", "x"}));
  check(plan_of({"--nnodes", "2", "--bind", "none", "--log-dir", "l", "--engine", "shm", "--rdzv-id", "x"}));
  check(plan_of({}, {{"NNODES", "2"}, {"OMP_NUM_THREADS", "1"}, {"LOCKSTEP_ENGINE", "shm"}}));
  const auto restarts = fact(plan_of({"--max-restarts", "2"}), "restarts");
  EXPECT_EQ(restarts.value("origin", ""), "flag --max-restarts");
  EXPECT_EQ(fact(plan_of({}), "restarts").value("origin", ""), "default");
}

}  // namespace
}  // namespace lockstep::test
