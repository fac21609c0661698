#include "cli/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

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
