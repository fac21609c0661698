// `lockstep run` on real processes: the environment contract, logs, live output, and bad input.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "launch/blas.h"
#include "launch/cores.h"
#include "launch/cpu.h"
#include "launch/launched.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Run, GivesEachRankTorchrunsEnvironment) {
  std::vector<std::string> words;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK",
                           "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR",
                           "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"}) {
    words.insert(words.end(), {"env", name});
  }
  Child job(launched({"--nnodes=2", "--node_rank=1", "--nproc_per_node=2", "--master_addr=10.1.2.3"}, words));
  ASSERT_EQ(job.wait(), 0) << job.errors();
  EXPECT_EQ(read_file(job.folder() / "logs/rank_3/stdout.log"),
            "RANK=3\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nNODE_RANK=1\nGROUP_RANK=1\nGROUP_WORLD_"
            "SIZE=2\n"
            "ROLE_RANK=3\nROLE_NAME=default\nROLE_WORLD_SIZE=4\nMASTER_ADDR=10.1.2.3\nTORCHELASTIC_RESTART_"
            "COUNT=0\n"
            "TORCHELASTIC_MAX_RESTARTS=0\n");
}

TEST(Run, ReadsTheEnvironmentWhereAFlagIsAbsent) {
  Child job(launched({}, {"env", "RANK", "env", "WORLD_SIZE", "env", "MASTER_ADDR", "env", "MASTER_PORT"}),
            {.environment = {{"NNODES", "3"},
                             {"NODE_RANK", "2"},
                             {"NPROC_PER_NODE", "2"},
                             {"MASTER_ADDR", "10.1.2.3"},
                             {"MASTER_PORT", "1234"}}});
  ASSERT_EQ(job.wait(), 0) << job.errors();
  EXPECT_EQ(read_file(job.folder() / "logs/rank_5/stdout.log"),
            "RANK=5\nWORLD_SIZE=6\nMASTER_ADDR=10.1.2.3\nMASTER_PORT=1234\n");
}

TEST(Run, KeepsTheUsersOwnThreadsAndKernels) {
  Child job(
      launched({"--nproc-per-node", "1", "--env", "EXTRA=a=b", "--env", "ROLE_NAME=trainer"},
               {"env", "OMP_NUM_THREADS", "env", "OPENBLAS_CORETYPE", "env", "EXTRA", "env", "ROLE_NAME"}),
      {.environment = {{"OMP_NUM_THREADS", "7"}, {"OPENBLAS_CORETYPE", "Nehalem"}}});
  ASSERT_EQ(job.wait(), 0) << job.errors();
  EXPECT_EQ(read_file(job.folder() / "logs/rank_0/stdout.log"),
            "OMP_NUM_THREADS=7\nOPENBLAS_CORETYPE=Nehalem\nEXTRA=a=b\nROLE_NAME=trainer\n");
}

TEST(Run, MendsAMisreadCpu) {
  const launch::Environment misread = {{"LD_LIBRARY_PATH", LOCKSTEP_FAKE_OPENBLAS},
                                       {"OPENBLAS_CORETYPE", ""}};
  Child job(launched({"--nproc-per-node", "1"}, {"env", "OPENBLAS_CORETYPE"}), {.environment = misread});
  ASSERT_EQ(job.wait(), 0) << job.errors();
  EXPECT_EQ(read_file(job.folder() / "logs/rank_0/stdout.log"),
            "OPENBLAS_CORETYPE=" + launch::best_coretype(launch::detect_cpu()) + "\n");
}

TEST(Run, PrefixesWholeLinesByNodeAndRank) {
  Child job(launched({"--nproc-per-node", "3"}, {"count", "500", "50", "print-raw", "no newline"}));
  ASSERT_EQ(job.wait(), 0);
  std::istringstream lines(job.output());
  int next[3] = {};
  int unfinished = 0;
  for (std::string line; std::getline(lines, line);) {
    int prefix = -1, rank = -1, number = -1;
    if (line.ends_with("no newline")) {
      ++unfinished;
      continue;
    }
    ASSERT_EQ(std::sscanf(line.c_str(), "[0:%d] rank %d line %d", &prefix, &rank, &number), 3) << line;
    EXPECT_EQ(prefix, rank);
    EXPECT_EQ(number, next[rank]++);
    EXPECT_TRUE(line.ends_with(std::string(50, 'x')));
  }
  EXPECT_EQ(unfinished, 3);
  EXPECT_EQ(next[0] + next[1] + next[2], 1500);
}

TEST(Run, SeparatesTheStreams) {
  Child job(launched({"--nproc-per-node", "1"}, {"print", "result", "complain", "warning"}));
  ASSERT_EQ(job.wait(), 0);
  EXPECT_EQ(job.output(), "[0:0] result\n");
  EXPECT_EQ(job.errors(), "[0:0] warning\n");
  EXPECT_EQ(read_file(job.folder() / "logs/rank_0/stdout.log"), "result\n");
  EXPECT_EQ(read_file(job.folder() / "logs/rank_0/stderr.log"), "warning\n");
}

TEST(Run, ShowsWhatTeeAndFilterAskFor) {
  Child tee(
      launched({"--nproc-per-node", "2", "--tee", "0:1,1:2"}, {"print", "result", "complain", "warning"}));
  ASSERT_EQ(tee.wait(), 0);
  EXPECT_EQ(tee.output(), "[0:0] result\n");
  EXPECT_EQ(tee.errors(), "[0:1] warning\n");
  Child filter(launched({"--nproc-per-node", "3", "--ranks-filter", "1"}, {"print", "result"}));
  ASSERT_EQ(filter.wait(), 0);
  EXPECT_EQ(filter.output(), "[0:1] result\n");
  EXPECT_EQ(read_file(filter.folder() / "logs/rank_2/stdout.log"), "result\n");
}

TEST(Run, ANewRunReplacesTheLogsOfTheLast) {
  TemporaryFolder folder;
  Child first(launched({"--log-dir", folder / "l"}, {"print", "first"}));
  ASSERT_EQ(first.wait(), 0);
  Child second(launched({"--log-dir", folder / "l"}, {"print", "second"}));
  ASSERT_EQ(second.wait(), 0);
  EXPECT_EQ(read_file(folder / "l/rank_0/stdout.log"), "second\n");
}

TEST(Run, WritesBehindWhatIsLeftOfALogThatWasTruncated) {
  TemporaryFolder folder;
  Child job(launched({}, {"print", "long ago", "await", folder / "go", "print", "now"}));
  const auto log = job.folder() / "logs/rank_0/stdout.log";
  ASSERT_TRUE(eventually([&] { return read_file(log) == "long ago\n"; }));
  std::filesystem::resize_file(log, 0);
  write_file(folder / "go", "");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(read_file(log), "now\n");
}

TEST(Run, RefusesLogsBehindASymbolicLink) {
  TemporaryFolder folder;
  write_file(folder / "precious", "mine");
  std::filesystem::create_directories(folder / "file/rank_0");
  std::filesystem::create_symlink(folder / "precious", folder / "file/rank_0/stderr.log");
  std::filesystem::create_directories(folder / "dangling/rank_0");
  std::filesystem::create_symlink(folder / "new", folder / "dangling/rank_0/stdout.log");
  std::filesystem::create_directories(folder / "folder");
  std::filesystem::create_directory(folder / "elsewhere");
  std::filesystem::create_symlink(folder / "elsewhere", folder / "folder/rank_0");
  for (const std::string name : {"file/rank_0/stderr.log", "dangling/rank_0/stdout.log", "folder/rank_0"}) {
    const std::string logs = folder / name.substr(0, name.find('/'));
    Child job(launched({"--log-dir", logs}, {"print", "started"}));
    EXPECT_EQ(job.wait(), 2) << name;
    EXPECT_THAT(job.errors(),
                HasSubstr("--log-dir: " + (folder / name).string() + " is a symbolic link; hint: "));
    EXPECT_EQ(job.output(), "");
  }
  EXPECT_EQ(read_file(folder / "precious"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "elsewhere"));
  // The folder itself is the user's own word.
  std::filesystem::create_symlink(folder / "elsewhere", folder / "logs");
  Child job(launched({"--log-dir", folder / "logs"}, {"print", "result"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(read_file(folder / "elsewhere/rank_0/stdout.log"), "result\n");
}

TEST(Run, RefusesLogsThatAnotherJobWrites) {
  TemporaryFolder folder;
  Child first(launched({"--log-dir", folder / "l"}, {"touch", folder / "ready", "print", "mine", "pause"}));
  ASSERT_TRUE(eventually([&] { return read_file(folder / "l/rank_0/stdout.log") == "mine\n"; }));
  Child second(launched({"--log-dir", folder / "l"}, {"print", "second"}));
  EXPECT_EQ(second.wait(), 2);
  EXPECT_THAT(second.errors(), HasSubstr("another job writes"));
  EXPECT_EQ(read_file(folder / "l/rank_0/stdout.log"), "mine\n");
}

TEST(Run, GivesItsInputToRankZero) {
  Child job(launched({"--nproc-per-node", "2"}, {"read"}), {.input = "hello"});
  ASSERT_EQ(job.wait(), 0);
  EXPECT_THAT(job.output(), HasSubstr("[0:0] read 5 hello"));
  EXPECT_THAT(job.output(), HasSubstr("[0:1] read 0 "));
}

TEST(Run, BindsRanksToSharesOfTheCores) {
  const auto cores = launch::allowed_cores();
  const int count = static_cast<int>(cores.size());
  Child bound(launched({"--nproc-per-node", std::to_string(count)}, {"cpus", "env", "OMP_NUM_THREADS"}));
  ASSERT_EQ(bound.wait(), 0);
  for (int rank = 0; rank < count; ++rank) {
    std::string expected = "cpus";
    for (const int cpu : cores[static_cast<size_t>(rank)].cpus) expected += " " + std::to_string(cpu);
    EXPECT_EQ(read_file(bound.folder() / "logs" / ("rank_" + std::to_string(rank)) / "stdout.log"),
              expected + "\nOMP_NUM_THREADS=1\n");
  }
  std::string all = "cpus";
  for (const auto& core : cores) {
    for (const int cpu : core.cpus) all += " " + std::to_string(cpu);
  }
  Child crowded(launched({"--nproc-per-node", std::to_string(count + 1)}, {"cpus"}));
  ASSERT_EQ(crowded.wait(), 0);
  EXPECT_EQ(read_file(crowded.folder() / "logs/rank_0/stdout.log"), all + "\n");
}

TEST(Run, DryRunExplainsAndStartsNothing) {
  Child job(
      launched({"--dry-run", "--explain", "--nnodes", "4", "--node-rank", "3", "--nproc-per-node", "8"}, {}));
  ASSERT_EQ(job.wait(), 0) << job.errors();
  EXPECT_THAT(job.output(), HasSubstr("node_rank * nproc_per_node + local_rank = 3 * 8 + 2"));
  EXPECT_THAT(job.output(), HasSubstr("Rank 31 (node 3, local rank 7)"));
  EXPECT_THAT(job.output(), HasSubstr("flag --nproc-per-node"));
  EXPECT_FALSE(std::filesystem::exists(job.folder() / "logs"));
}

struct BadInput {
  std::string name;
  std::vector<std::string> flags;
  std::string program;
  std::string expected;
};

void PrintTo(const BadInput& input, std::ostream* stream) {
  *stream << input.name;
}

class RunRefuses : public testing::TestWithParam<BadInput> {};

TEST_P(RunRefuses, ByNameAndValueAndStartsNothing) {
  std::vector<std::string> command = {LOCKSTEP_COMMAND, "run"};
  command.insert(command.end(), GetParam().flags.begin(), GetParam().flags.end());
  command.push_back("--");
  if (!GetParam().program.empty()) command.push_back(GetParam().program);
  Child job(command);
  std::ofstream(job.folder() / "not_executable") << "text";
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.errors(), HasSubstr(GetParam().expected));
  EXPECT_EQ(job.output(), "");
  EXPECT_FALSE(std::filesystem::exists(job.folder() / "logs/rank_0/stdout.log"));
}

INSTANTIATE_TEST_SUITE_P(
    Inputs, RunRefuses,
    testing::Values(
        BadInput{"NoProgram", {}, "", "no program given"},
        BadInput{"MissingProgram", {}, "./nowhere", "program ./nowhere: no such file"},
        BadInput{"NotOnPath",
                 {},
                 "no-such-program-anywhere",
                 "program no-such-program-anywhere: not found on PATH"},
        BadInput{"NotExecutable", {}, "/etc/passwd", "program /etc/passwd: not executable"},
        BadInput{"Folder", {}, "/etc", "program /etc: this is a folder"},
        BadInput{
            "ZeroRanks", {"--nproc-per-node", "0"}, "true", "--nproc-per-node: 0 is not between 1 and 1024"},
        BadInput{"ManyRanks",
                 {"--nproc-per-node", "99999"},
                 "true",
                 "--nproc-per-node: 99999 is not between 1 and 1024"},
        BadInput{
            "Text", {"--nproc-per-node", "two"}, "true", "--nproc-per-node: 'two' is not a whole number"},
        BadInput{"NodeRank",
                 {"--nnodes", "2", "--node-rank", "2", "--master-addr", "127.0.0.1"},
                 "true",
                 "--node-rank: 2 is not between 0 and 1"},
        BadInput{
            "NoNodeRank", {"--nnodes", "2", "--master-addr", "127.0.0.1"}, "true", "hint: give --node-rank"},
        BadInput{"NoMaster", {"--nnodes", "2", "--node-rank", "0"}, "true", "hint: give --master-addr"},
        BadInput{"Range", {"--nnodes", "1:4"}, "true", "--nnodes: '1:4' is a range"},
        BadInput{
            "Port", {"--master-port", "70000"}, "true", "--master-port: 70000 is not between 1 and 65535"},
        BadInput{"Grace", {"--grace", "-1"}, "true", "--grace: '-1' is not a number of seconds"},
        BadInput{"Tee", {"--tee", "4"}, "true", "--tee: 4 is not between 0 and 3"},
        BadInput{"Filter", {"--ranks-filter", "1"}, "true", "--ranks-filter: 1 is not between 0 and 0"},
        BadInput{"Bind", {"--bind", "socket"}, "true", "'socket' is none of core, none"},
        BadInput{"Env", {"--env", "NAME"}, "true", "--env 'NAME': not of the form NAME=VALUE"},
        BadInput{"Engine", {"--engine", "nccl"}, "true", "--engine nccl: there is no such engine"},
        BadInput{"Restarts",
                 {"--max-restarts", "1", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1"},
                 "true",
                 "--max-restarts 1 with 2 nodes"},
        BadInput{"LogFolder", {"--log-dir", "/proc/nowhere"}, "true", "--log-dir /proc/nowhere: cannot make"},
        BadInput{"UnknownFlag", {"--nproc_per_nodes", "2"}, "true", "did you mean --nproc-per-node?"},
        BadInput{"Standalone", {"--standalone", "--nnodes", "2"}, "true", "--standalone with 2 nodes"}),
    [](const auto& test) { return test.param.name; });

TEST(Run, RefusesABadExecutableBeforeAnyRankRuns) {
  TemporaryFolder folder;
  std::ofstream(folder / "script") << "#!/no/such/interpreter\n";
  std::filesystem::permissions(folder / "script", std::filesystem::perms::all);
  Child job({LOCKSTEP_COMMAND, "run", "--nproc-per-node", "2", "--", (folder / "script").string()});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.errors(), AllOf(HasSubstr("cannot execute"), HasSubstr("No such file or directory")));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Run, ARefusedRunKeepsTheLogsOfTheLast) {
  TemporaryFolder folder;
  Child good(launched({"--log-dir", folder / "l", "--nproc-per-node", "2"}, {"print", "precious"}));
  ASSERT_EQ(good.wait(), 0);
  std::ofstream(folder / "script") << "#!/no/such/interpreter\n";
  std::filesystem::permissions(folder / "script", std::filesystem::perms::all);
  Child bad({LOCKSTEP_COMMAND, "run", "--log-dir", (folder / "l").string(), "--nproc-per-node", "2", "--",
             (folder / "script").string()});
  EXPECT_EQ(bad.wait(), 2);
  EXPECT_EQ(read_file(folder / "l/rank_0/stdout.log"), "precious\n");
  EXPECT_EQ(read_file(folder / "l/rank_1/stdout.log"), "precious\n");
}

TEST(Run, RefusesALogThatIsNoRegularFile) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder / "l/rank_1");
  const std::string pipe = folder / "l/rank_1/stderr.log";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0644), 0);
  const std::vector<std::string> flags = {"--log-dir", folder / "l", "--nproc-per-node", "2"};
  Child unread(launched(flags, {"print", "started"}));
  EXPECT_EQ(unread.wait(), 2);
  EXPECT_THAT(unread.errors(), HasSubstr(pipe + " is no regular file; hint: "));
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  Child read(launched(flags, {"print", "started"}));
  EXPECT_EQ(read.wait(), 2);
  EXPECT_THAT(read.errors(), HasSubstr(pipe + " is no regular file; hint: "));
  EXPECT_EQ(read.output(), "");
  close(reader);
}

TEST(Run, RefusesAMasterPortInUse) {
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(server, 1), 0);
  socklen_t size = sizeof address;
  getsockname(server, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const std::vector<std::string> flags = {"--nnodes",      "2",         "--node-rank",   "0",
                                          "--master-addr", "127.0.0.1", "--master-port", port};
  Child job(launched(flags, {"print", "started"}));
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.errors(), HasSubstr("--master-port " + port + ": in use on 127.0.0.1"));
  EXPECT_THAT(job.output(), Not(HasSubstr("started")));
  close(server);
}

TEST(Run, RefusesSeveralSrunTasksOnANode) {
  Child job(launched({"--nproc-per-node", "2"}, {"print", "started"}),
            {.environment = {{"SLURM_JOB_ID", "7"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", "1"},
                             {"SLURM_LOCALID", "1"},
                             {"SLURM_NODEID", "0"},
                             {"SLURM_STEP_NUM_TASKS", "2"},
                             {"SLURM_STEP_NUM_NODES", "1"},
                             {"SLURM_STEP_TASKS_PER_NODE", "2"},
                             {"SLURM_STEP_NODELIST", "tux1"}}});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.errors(), HasSubstr("srun started 2 tasks on this node"));
}

TEST(Run, UnderOneSrunTaskPerNodeTasksAreNodes) {
  Child job(launched({"--nproc-per-node", "2", "--dry-run", "--explain"}, {}),
            {.environment = {{"SLURM_JOB_ID", "7"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", "1"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_NODEID", "1"},
                             {"SLURM_STEP_NUM_TASKS", "2"},
                             {"SLURM_STEP_NUM_NODES", "2"},
                             {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                             {"SLURM_STEP_NODELIST", "tux[1-2]"}}});
  ASSERT_EQ(job.wait(), 0) << job.errors();
  EXPECT_THAT(job.output(), HasSubstr("Rank 3 (node 1, local rank 1)"));
  EXPECT_THAT(line_with(job.output(), "MASTER_ADDR"), HasSubstr("tux1"));
  EXPECT_THAT(line_with(job.output(), "SLURM_PROCID"), HasSubstr("srun"));
}

}  // namespace
}  // namespace lockstep::test
