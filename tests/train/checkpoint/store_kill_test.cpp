// The promise that a torn checkpoint is never loaded and a committed one never lost: strace stops a program
// that commits at each of its system calls in turn.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "support/child.h"
#include "support/temporary_folder.h"
#include "train/checkpoint/store.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr int kKilled = 128 + SIGKILL;
constexpr int kMostCalls = 500;

/// What a run of the actor told.
struct Told {
  int exit_code = 0;
  int64_t committed = 0;  ///< The last step, 0 if none.
  std::string errors;
};

/// A folder of checkpoints and the actor that writes them.
class Actor {
 public:
  const fs::path& folder() const { return folder_; }
  const fs::path& parent() const { return parent_.path(); }
  CheckpointStore store() const { return CheckpointStore(folder_); }

  /// Begins with a copy of those checkpoints.
  void start_with(const fs::path& checkpoints) {
    fs::create_directories(folder_);
    fs::copy(checkpoints, folder_, fs::copy_options::recursive);
    runs_ = 1;
  }

  /// Runs to the end; each run writes other bytes.
  Told run(const std::vector<std::string>& injections = {}, const std::function<void()>& before = {}) {
    std::vector<std::string> command;
    if (!injections.empty()) command = {"strace", "-f", "-o", "/dev/null"};
    for (const std::string& injection : injections) command.insert(command.end(), {"-e", injection});
    command.insert(command.end(), {LOCKSTEP_STORE_ACTOR, folder_.string(), fmt::format("{}", ++runs_)});
    // The leak detector does not work in a program that is traced.
    test::Child child(command, {.environment = {{"ASAN_OPTIONS", "detect_leaks=0"}}, .before = before});
    Told told{.exit_code = child.wait(), .errors = child.errors()};
    const std::string output = child.output();
    for (const int64_t step : {1, 2, 3}) {
      if (output.find(fmt::format("committed {}\n", step)) != std::string::npos) told.committed = step;
    }
    return told;
  }

  /// Runs as if nothing had been, and leaves what a first run leaves.
  void expect_next_run_works() {
    const Told told = run();
    ASSERT_EQ(told.exit_code, 0) << told.errors;
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    EXPECT_THAT(names, UnorderedElementsAre("LATEST", "step_00000002", "step_00000003"));
    expect_holds(3);
    EXPECT_EQ(test::read_file(folder_ / "LATEST"), "step_00000003\n");
  }

  /// There is a whole checkpoint of this step or a later one.
  void expect_holds(int64_t step) const {
    const auto found = store().find();
    const int64_t newest = found.checkpoint ? found.checkpoint->step : 0;
    EXPECT_GE(newest, step) << fmt::format("{}", fmt::join(found.refused, "\n"));
    // A run that dies leaves nothing torn that looks like a checkpoint.
    for (const Checkpoint& each : store().checkpoints()) EXPECT_NO_THROW(verify_checkpoint(each.folder));
    const std::string latest = test::read_file(folder_ / "LATEST");
    if (!latest.empty()) {
      EXPECT_TRUE(fs::is_directory(folder_ / latest.substr(0, latest.size() - 1))) << latest;
    }
  }

 private:
  test::TemporaryFolder parent_;
  fs::path folder_ = parent_ / "run/checkpoints";
  int runs_ = 0;
};

TEST(Strace, IsInstalled) {
  test::Child child(
      {"strace", "-f", "-o", "/dev/null", "-e", "inject=write:signal=SIGKILL:when=1", "/bin/echo", "x"});
  ASSERT_EQ(child.wait(), kKilled)
      << "strace cannot stop a program here, and the tests below need it; hint: apt "
         "install strace, and allow ptrace in the container\n"
      << child.errors();
}

/// The calls of a run, as strace writes them, one a line.
std::string calls_of(const Actor& actor, const std::vector<std::string>& expressions) {
  std::vector<std::string> command = {"strace", "-f", "-y", "-s", "1000", "-o", "calls"};
  for (const std::string& expression : expressions) command.insert(command.end(), {"-e", expression});
  command.insert(command.end(), {LOCKSTEP_STORE_ACTOR, actor.folder().string(), "7"});
  test::Child child(command, {.environment = {{"ASAN_OPTIONS", "detect_leaks=0"}}});
  EXPECT_EQ(child.wait(), 0) << child.errors();
  return test::read_file(child.folder() / "calls");
}

constexpr const char* kOrderedCalls = "trace=fsync,?rename,?renameat,?renameat2,?mkdir,mkdirat";

/// That each text comes behind the one before it; returns where the last ends.
size_t expect_in_turn(const std::string& calls, const std::vector<std::string>& texts, size_t at = 0) {
  for (const std::string& text : texts) {
    const size_t found = calls.find(text, at);
    if (found == std::string::npos) {
      ADD_FAILURE() << text << " does not come in its turn:\n" << calls;
      return at;
    }
    at = found + text.size();
  }
  return at;
}

// A kill leaves to the kernel what was written; a loss of power does not. So the order of the calls counts.
TEST(Commit, AsksTheDiskForEachThingBeforeTheNextRestsOnIt) {
  Actor actor;
  const std::string calls = calls_of(actor, {kOrderedCalls});
  const std::string folder = fs::canonical(actor.folder()).string();
  const std::string run = fs::canonical(actor.folder().parent_path()).string();
  const std::string above = fs::canonical(actor.parent()).string();
  const auto quoted = [](const std::string& path) { return "\"" + path + "\""; };
  size_t at = expect_in_turn(calls, {quoted(run), above + ">", quoted(folder), run + ">"});
  for (const char* step : {"step_00000001", "step_00000002"}) {
    const std::string temporary = fmt::format("{}/.{}.tmp", folder, step);
    at = expect_in_turn(
        calls,
        {quoted(temporary), folder + ">", temporary + "/model>", temporary + "/optimizer>",
         temporary + "/state>", temporary + "/manifest.json>", temporary + ">", quoted(folder + "/" + step),
         folder + ">", folder + "/.LATEST.tmp>", quoted(folder + "/LATEST"), folder + ">"},
        at);
  }
}

// The last step's: nothing that comes later can be taken for the call that is missing.
TEST(Commit, AsksTheDiskForACheckpointThatReplacesAnotherBeforeThatIsRemoved) {
  for (const bool exchanges : {true, false}) {
    SCOPED_TRACE(exchanges ? "by exchange" : "by two renames");
    Actor actor;
    ASSERT_EQ(actor.run().exit_code, 0);
    std::vector<std::string> expressions = {"trace=fsync,?rename,?renameat,?renameat2,unlinkat"};
    if (!exchanges) expressions.emplace_back("inject=renameat2:error=EINVAL");
    const std::string calls = calls_of(actor, expressions);
    const std::string folder = fs::canonical(actor.folder()).string();
    const std::string place = folder + "/step_00000003", temporary = folder + "/.step_00000003.tmp";
    std::vector<std::string> expected = {temporary + "/manifest.json>", temporary + ">"};
    if (!exchanges) expected.push_back(fmt::format("\"{}/.step_00000003.old\"", folder));
    expected.push_back(fmt::format("\"{}\"{}", place, exchanges ? ", RENAME_EXCHANGE" : ")"));
    const size_t renamed = expect_in_turn(calls, expected);
    // The very next call.
    const size_t line = calls.find('\n', renamed);
    ASSERT_NE(line, std::string::npos);
    const std::string next = calls.substr(line + 1, calls.find('\n', line + 1) - line - 1);
    EXPECT_THAT(next, AllOf(HasSubstr("fsync("), HasSubstr("<" + folder + ">"))) << calls;
  }
}

// Some file systems say only now that bytes are lost.
TEST(Fault, OfClosingAFileThatWasWrittenIsReported) {
  Actor whole;
  std::istringstream closes(calls_of(whole, {"trace=close"}));
  std::set<std::string> seen;
  int number = 0;
  for (std::string line; std::getline(closes, line);) {
    if (line.find("close(") == std::string::npos) continue;
    ++number;
    // The first close of a file is its writer's; step 2 is as step 1.
    const bool is_written =
        line.find(".tmp/") != std::string::npos || line.find(".LATEST.tmp>") != std::string::npos;
    const bool is_second = line.find("/.step_00000002.tmp/") != std::string::npos;
    if (!is_written || is_second || !seen.insert(line.substr(line.find('<'))).second) continue;
    SCOPED_TRACE(line);
    Actor actor;
    const Told told = actor.run({fmt::format("inject=close:error=EIO:when={}", number)});
    ASSERT_EQ(told.exit_code, 1) << "ignored";
    EXPECT_THAT(told.errors,
                AllOf(HasSubstr("cannot close " + actor.parent().string()), HasSubstr("Input/output error")));
    actor.expect_holds(told.committed);
    actor.expect_next_run_works();
  }
  EXPECT_EQ(seen.size(), 9U);
}

/// Where the folder stands when the run begins that is stopped.
enum class Before { kNothing, kSameSteps, kSameStepsWithoutExchange };

struct KillCase {
  std::string name;
  Before before;
  std::string calls;  ///< As strace names them; of several only one is used on each kind of machine.

  friend void PrintTo(const KillCase& shown, std::ostream* out) { *out << shown.name; }
};

class Kill : public testing::TestWithParam<KillCase> {};

TEST_P(Kill, AtEachCallLosesNothingThatWasCommitted) {
  const auto& [name, before, calls] = GetParam();
  Actor earlier;
  ASSERT_EQ(earlier.run().exit_code, 0);
  int kills = 0;
  for (int k = 1;; ++k) {
    SCOPED_TRACE(fmt::format("killed at call {} of {}", k, calls));
    ASSERT_LT(k, kMostCalls);
    Actor actor;
    if (before != Before::kNothing) actor.start_with(earlier.folder());
    std::vector<std::string> injections = {fmt::format("inject={}:signal=SIGKILL:when={}", calls, k)};
    if (before == Before::kSameStepsWithoutExchange) injections.emplace_back("inject=renameat2:error=EINVAL");
    const Told told = actor.run(injections);
    if (told.exit_code == 0) {
      EXPECT_EQ(told.committed, 3);
      break;
    }
    ASSERT_EQ(told.exit_code, kKilled) << told.errors;
    ++kills;
    actor.expect_holds(before == Before::kNothing ? told.committed : 3);
    actor.expect_next_run_works();
    if (HasFailure()) return;
  }
  EXPECT_GT(kills, 0) << "the program makes no such call; hint: mend the test's list";
}

std::vector<KillCase> kill_cases() {
  const std::vector<std::pair<std::string, std::string>> calls = {{"Write", "write"},
                                                                  {"Writev", "writev"},
                                                                  {"Sync", "fsync"},
                                                                  {"Open", "openat"},
                                                                  {"Rename", "?rename,?renameat"},
                                                                  {"MakeFolder", "?mkdir,mkdirat"},
                                                                  {"Remove", "unlinkat"}};
  std::vector<KillCase> cases;
  for (const auto& [name, list] : calls) {
    cases.push_back({name + "InANewFolder", Before::kNothing, list});
    cases.push_back({name + "WhileReplacing", Before::kSameSteps, list});
    cases.push_back({name + "WhileReplacingWithoutExchange", Before::kSameStepsWithoutExchange, list});
  }
  cases.push_back({"ExchangeWhileReplacing", Before::kSameSteps, "renameat2"});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Store, Kill, testing::ValuesIn(kill_cases()),
                         [](const auto& instance) { return instance.param.name; });

struct FaultCase {
  std::string name;
  std::string call;
  std::string error;
  std::string text;

  friend void PrintTo(const FaultCase& shown, std::ostream* out) { *out << shown.name; }
};

class Faults : public testing::TestWithParam<FaultCase> {};

TEST_P(Faults, OfTheDiskIsToldAndLosesNothing) {
  const auto& [name, call, error, text] = GetParam();
  int faults = 0;
  for (int k = 1;; ++k) {
    SCOPED_TRACE(fmt::format("{} at call {} of {}", error, k, call));
    ASSERT_LT(k, kMostCalls);
    Actor actor;
    const Told told = actor.run({fmt::format("inject={}:error={}:when={}", call, error, k)});
    if (told.exit_code == 0) break;
    ++faults;
    ASSERT_EQ(told.exit_code, 1) << told.errors;
    EXPECT_THAT(told.errors, AllOf(HasSubstr(actor.parent().string()), HasSubstr(text)));
    actor.expect_holds(told.committed);
    for (const int64_t step : {1, 2, 3}) EXPECT_FALSE(fs::exists(actor.store().temporary(step)));
    actor.expect_next_run_works();
    if (HasFailure()) return;
  }
  EXPECT_GT(faults, 0);
}

constexpr const char* kFull = "No space left on device; hint: make room on the disk of ";

INSTANTIATE_TEST_SUITE_P(
    Store, Faults,
    testing::Values(FaultCase{"FullDiskWhileWriting", "writev", "ENOSPC", kFull},
                    FaultCase{"FullDiskWhileSyncing", "fsync", "ENOSPC", kFull},
                    FaultCase{"BrokenDisk", "fsync", "EIO", "Input/output error"},
                    FaultCase{"FullDiskWhileRenaming", "?rename,?renameat", "ENOSPC", kFull},
                    FaultCase{"FullDiskWhileMakingAFolder", "?mkdir,mkdirat", "ENOSPC", kFull}),
    [](const auto& instance) { return instance.param.name; });

// Without strace: the file system itself says no in the middle of a file, after a part was written.
TEST(LimitedFile, IsToldAndLeavesNoTemporaryFolder) {
  Actor actor;
  const Told told = actor.run({}, [] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = 1001, .rlim_max = 1001};  // enough for step 1 alone
    setrlimit(RLIMIT_FSIZE, &limit);
  });
  EXPECT_EQ(told.exit_code, 1);
  EXPECT_EQ(told.committed, 1);
  EXPECT_THAT(told.errors, HasSubstr(".step_00000002.tmp/model: File too large"));
  actor.expect_holds(1);
  EXPECT_FALSE(fs::exists(actor.store().temporary(2)));
  actor.expect_next_run_works();
}

}  // namespace
}  // namespace lockstep::train
