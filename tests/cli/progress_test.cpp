#include "cli/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "support/child.h"

namespace lockstep::cli {
namespace {

/// What `body` writes to the stream that it is given.
template <typename Body>
std::string written(Body body) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  body(stream);
  std::fclose(stream);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(SlowWork, IsNamedWhenItTakesLongAndTheLineIsRemovedFromATerminal) {
  const auto text_of = [](bool rewrite, std::chrono::milliseconds after, const char* awaited) {
    const test::TemporaryFolder folder;
    std::FILE* stream = std::fopen((folder / "text").c_str(), "w");
    {
      const SlowWork slow(stream, "proving ring", rewrite, after);
      const auto there = [&] { return test::read_file(folder / "text").find(awaited) != std::string::npos; };
      EXPECT_TRUE(test::eventually(there)) << awaited;
    }
    std::fclose(stream);
    return test::read_file(folder / "text");
  };
  using std::chrono::milliseconds;
  const std::string early = written([&](std::FILE* stream) {
    const SlowWork patient(stream, "proving tree", false, std::chrono::hours(1));
    // Meanwhile the patient one has long begun to wait.
    EXPECT_EQ(text_of(false, milliseconds(1), "while"), "proving ring: this takes a while\n");
  });
  EXPECT_EQ(early, "");
  const std::string rewritten = text_of(true, milliseconds(1), "0:01");
  EXPECT_TRUE(rewritten.starts_with("\rproving ring  0:00\x1b[K\rproving ring  0:01\x1b[K")) << rewritten;
  EXPECT_TRUE(rewritten.ends_with("\x1b[K\r\x1b[K"));
}

TEST(SlowWork, GoesOnWhereItCannotBeNamed) {
  for (const bool rewrite : {false, true}) {
    std::FILE* stream = std::fopen("/dev/full", "w");
    std::setvbuf(stream, nullptr, _IONBF, 0);  // as standard error is
    {
      const SlowWork slow(stream, "proving ring", rewrite, std::chrono::milliseconds(0));
      EXPECT_TRUE(test::eventually([&] { return std::ferror(stream) != 0; }));
    }
    std::fclose(stream);
  }
}

TEST(SlowWork, IsNamedByASimulationOfManyRanks) {
  const test::Child child(
      {LOCKSTEP_COMMAND, "simulate", "allreduce", "--world", "30000", "--algorithms", "tree,ring"});
  const std::string line = "simulating all_reduce by ring on 30000 ranks (2 of 2): this takes a while\n";
  // On a busy machine the tree may be slow, too.
  EXPECT_TRUE(test::eventually([&] { return child.errors().ends_with(line); })) << child.errors();
}  // kills it: the ring takes minutes

TEST(ClockText, CountsUpToHours) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(6.2), "0:07");
  EXPECT_EQ(clock_text(754), "12:34");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(-1), "0:00");
}

TEST(Progress, WritesALineAtEachTenthWithoutATerminal) {
  const std::string text = written([](std::FILE* stream) {
    Progress progress(stream, 25, false);
    for (int64_t done = 1; done <= 25; ++done) progress.update(done, 0.001, "x");
  });
  EXPECT_EQ(text.substr(0, 26), "step  3/25  x\nstep  6/25  ");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 9);
  EXPECT_TRUE(text.ends_with("step 25/25  x\n"));
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Progress, WritesEveryStepOfAShortRun) {
  const std::string text = written([](std::FILE* stream) {
    Progress progress(stream, 2, false);
    progress.update(1, 1, "a");
    progress.update(2, 2, "b");
  });
  EXPECT_EQ(text, "step 1/2  a\nstep 2/2  b\n");
}

TEST(Progress, RewritesOneLineOnATerminalTenTimesASecond) {
  const std::string text = written([](std::FILE* stream) {
    Progress progress(stream, 100, true);
    progress.update(10, 1.0, "a");
    progress.update(11, 1.05, "too early");
    progress.update(20, 2.0, "b");
  });
  EXPECT_EQ(text, "\rstep  10/100  a  ETA 0:09\x1b[K\rstep  20/100  b  ETA 0:08\x1b[K\r\x1b[K");
}

TEST(Progress, CutsALineThatWouldWrap) {
  const std::string text = written([](std::FILE* stream) {
    Progress progress(stream, 10, true);
    progress.update(1, 1.0, std::string(300, 'x'));
  });
  EXPECT_EQ(text.find("\x1b[K"), 80U);  // a stream that is no terminal counts as 80 columns: 79 and the \r
}

}  // namespace
}  // namespace lockstep::cli
