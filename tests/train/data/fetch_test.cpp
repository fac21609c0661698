#include "train/data/fetch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <thread>

#include "launch/capture.h"
#include "lockstep/error.h"
#include "support/child.h"
#include "support/temporary_folder.h"
#include "train/data/file_hash.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;
using testing::ThrowsMessage;

/// An npm that gives a package of ours, in a world without a network.
class Fetch : public testing::Test {
 protected:
  Fetch() {
    environment_ = launch::current_environment();
    for (const char* name : {"LOCKSTEP_FETCH_TIMEOUT", "XDG_CACHE_HOME"}) environment_.erase(name);
    environment_["LOCKSTEP_CACHE"] = cache().string();
    environment_["PATH"] = (folder_ / "bin").string() + ":" + environment_["PATH"];
    environment_["LOG"] = (folder_ / "log").string();
    environment_["ARCHIVE"] = (folder_ / "archive").string();
    make_npm(
        "while [ $# -gt 0 ]; do\n"
        "  if [ \"$1\" = --pack-destination ]; then cp \"$ARCHIVE\" \"$2/any-name.tgz\"; fi\n"
        "  shift\n"
        "done\n");
    make_archive("call me ishmael\n", "text");
  }

  fs::path cache() const { return folder_ / "cache"; }

  void make_npm(const std::string& body) {
    test::write_file(folder_ / "bin/npm", "#!/bin/sh\necho \"$@\" >> \"$LOG\"\n" + body);
    fs::permissions(folder_ / "bin/npm", fs::perms::owner_all);
  }

  void make_archive(const std::string& first, const std::string& second) {
    test::write_file(folder_ / "made/package/data/first.txt", first);
    test::write_file(folder_ / "made/package/second", second);
    test::write_file(folder_ / "made/package/other.js", "not asked for");
    const auto made = launch::capture(
        {"tar", "-czf", environment_["ARCHIVE"], "-C", (folder_ / "made").string(), "package"}, environment_,
        std::chrono::minutes(1));
    ASSERT_TRUE(made.ok()) << made.errors;
  }

  /// How often npm was run.
  int runs() const {
    const std::string log = test::read_file(folder_ / "log");
    return static_cast<int>(std::count(log.begin(), log.end(), '\n'));
  }

  void expect_nothing_left_behind() const {
    for (const auto& entry : fs::directory_iterator(cache())) {
      EXPECT_THAT(entry.path().filename().string(), Not(StartsWith("fetch-")));
    }
  }

  test::TemporaryFolder folder_;
  launch::Environment environment_;
  const Package package_{
      .name = "@tests/some-text",
      .version = "1.2.3",
      .files = {{"data/first.txt", 16, "61528b991c737f8a0a47a81d01d41d47d178c7a267cc8d67fbbece6ad5b4452f"},
                {"second", 4, "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"}}};
};

TEST_F(Fetch, PutsThePackagesFilesIntoTheCache) {
  const fs::path folder = fetch(package_, environment_);
  EXPECT_EQ(folder, cache() / "tests-some-text-1.2.3");
  EXPECT_EQ(test::read_file(folder / "data/first.txt"), "call me ishmael\n");
  EXPECT_EQ(test::read_file(folder / "second"), "text");
  EXPECT_FALSE(fs::exists(folder / "other.js"));
  EXPECT_THAT(test::read_file(folder_ / "log"), StartsWith("pack @tests/some-text@1.2.3 "));
  expect_nothing_left_behind();
}

TEST_F(Fetch, RunsNpmOnlyOnce) {
  fetch(package_, environment_);
  fetch(package_, environment_);
  EXPECT_EQ(runs(), 1);
}

TEST_F(Fetch, NamesNoRegistry) {
  fetch(package_, environment_);
  EXPECT_THAT(test::read_file(folder_ / "log"), Not(HasSubstr("registry")));
}

TEST_F(Fetch, FetchesAnewWhatWasAlteredInTheCache) {
  const fs::path folder = fetch(package_, environment_);
  test::write_file(folder / "second", "tex!");
  fetch(package_, environment_);
  EXPECT_EQ(test::read_file(folder / "second"), "text");
  EXPECT_EQ(runs(), 2);
}

TEST_F(Fetch, FetchesAnewWhatWasCutOrRemovedInTheCache) {
  const fs::path folder = fetch(package_, environment_);
  test::write_file(folder / "second", "te");
  fetch(package_, environment_);
  fs::remove(folder / "data/first.txt");
  fetch(package_, environment_);
  EXPECT_EQ(test::read_file(folder / "second"), "text");
  EXPECT_EQ(test::read_file(folder / "data/first.txt"), "call me ishmael\n");
  EXPECT_EQ(runs(), 3);
}

TEST_F(Fetch, RefusesAWrongChecksumWithBothValues) {
  make_archive("call me ishmael\n", "tExt");
  const auto found = hash_of(folder_ / "made/package/second");
  EXPECT_THAT([&] { fetch(package_, environment_); },
              ThrowsMessage<Error>(AllOf(HasSubstr("second has 4 bytes of SHA-256 " + found->sha256),
                                         HasSubstr("expected 4 bytes of " + package_.files[1].sha256))));
  EXPECT_FALSE(fs::exists(cache() / "tests-some-text-1.2.3"));
  expect_nothing_left_behind();
}

TEST_F(Fetch, RefusesAPackageWithoutTheFile) {
  fs::remove_all(folder_ / "made/package/second");
  const auto made = launch::capture(
      {"tar", "-czf", environment_["ARCHIVE"], "-C", (folder_ / "made").string(), "package/data"},
      environment_, std::chrono::minutes(1));
  ASSERT_TRUE(made.ok()) << made.errors;
  EXPECT_THAT([&] { fetch(package_, environment_); },
              ThrowsMessage<Error>(AllOf(HasSubstr("tar ended with"), HasSubstr("package/second"))));
}

TEST_F(Fetch, SaysThatNpmIsMissing) {
  environment_["PATH"] = (folder_ / "empty").string();
  EXPECT_THAT(
      [&] { fetch(package_, environment_); },
      ThrowsMessage<Error>("fetch @tests/some-text@1.2.3: npm is not on PATH; hint: install npm, or give a "
                           "file by --data PATH"));
}

TEST_F(Fetch, GivesTheLastLinesOfAnNpmThatFails) {
  make_npm("echo first >&2\nprintf 'npm error \\033[31m404\\n' >&2\nexit 7\n");
  EXPECT_THAT([&] { fetch(package_, environment_); },
              ThrowsMessage<Error>(HasSubstr("npm ended with 7: first | npm error \\x1b[31m404; hint: ")));
  expect_nothing_left_behind();
}

TEST_F(Fetch, SaysSoIfNpmMakesNothing) {
  make_npm("exit 0\n");
  EXPECT_THAT([&] { fetch(package_, environment_); }, ThrowsMessage<Error>(HasSubstr("npm made no .tgz")));
}

TEST_F(Fetch, KillsAnNpmThatHangs) {
  make_npm("echo $$ > \"$LOG.pid\"\nexec sleep 1000\n");
  environment_["LOCKSTEP_FETCH_TIMEOUT"] = "1";
  EXPECT_THAT([&] { fetch(package_, environment_); },
              ThrowsMessage<Error>(HasSubstr("npm was not done after 1 s; hint: ")));
  const int pid = std::stoi(test::read_file(folder_ / "log.pid"));
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
  expect_nothing_left_behind();
}

TEST_F(Fetch, RefusesATimeoutThatIsNoNumber) {
  environment_["LOCKSTEP_FETCH_TIMEOUT"] = "soon";
  EXPECT_THAT([&] { fetch(package_, environment_); },
              ThrowsMessage<UsageError>(HasSubstr("LOCKSTEP_FETCH_TIMEOUT: 'soon'")));
}

TEST_F(Fetch, RefusesACacheThatCannotBeWritten) {
  test::write_file(folder_ / "file", "no folder");
  environment_["LOCKSTEP_CACHE"] = (folder_ / "file/cache").string();
  EXPECT_THAT(
      [&] { fetch(package_, environment_); },
      ThrowsMessage<Error>(AllOf(StartsWith("cache " + (folder_ / "file/cache").string()),
                                 HasSubstr("cannot be written: Not a directory; hint: set LOCKSTEP_CACHE"))));
  EXPECT_EQ(runs(), 0);
}

TEST_F(Fetch, KeepsTheCacheWhereTheUserKeepsCaches) {
  environment_.erase("LOCKSTEP_CACHE");
  environment_["HOME"] = (folder_ / "home").string();
  EXPECT_EQ(fetch(package_, environment_), folder_ / "home/.cache/lockstep/tests-some-text-1.2.3");
  environment_["XDG_CACHE_HOME"] = (folder_ / "xdg").string();
  EXPECT_EQ(fetch(package_, environment_), folder_ / "xdg/lockstep/tests-some-text-1.2.3");
}

TEST_F(Fetch, RefusesAnEnvironmentWithoutAnyCache) {
  for (const char* name : {"LOCKSTEP_CACHE", "HOME"}) environment_.erase(name);
  EXPECT_THAT([&] { fetch(package_, environment_); },
              ThrowsMessage<Error>(HasSubstr("neither LOCKSTEP_CACHE nor XDG_CACHE_HOME nor HOME is set")));
}

TEST_F(Fetch, DoesNoHarmToAnotherAtTheSameTime) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back(
        [&] { EXPECT_EQ(test::read_file(fetch(package_, environment_) / "second"), "text"); });
  }
  for (auto& thread : threads) thread.join();
  expect_nothing_left_behind();
}

TEST(Packages, AreNamedWithSizesAndChecksums) {
  for (const Package& package : {moby_dick(), mnist()}) {
    EXPECT_THAT(package.files, Not(IsEmpty()));
    for (const PackageFile& file : package.files) {
      EXPECT_GT(file.bytes, 10'000U) << file.path;
      EXPECT_THAT(file.sha256, MatchesRegex("[0-9a-f]{64}")) << file.path;
    }
  }
  EXPECT_EQ(moby_dick().files[0].bytes, 1'204'997U);
}

TEST(HashOf, IsSha256) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "abc", "abc");
  const auto hash = hash_of(folder / "abc");
  ASSERT_TRUE(hash);
  EXPECT_EQ(hash->bytes, 3U);
  EXPECT_EQ(hash->sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_FALSE(hash_of(folder / "none"));
  EXPECT_FALSE(hash_of(folder.path()));
}

}  // namespace
}  // namespace lockstep::train
