#include "launch/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace lockstep::launch {
namespace {

using testing::ElementsAre;

std::vector<std::string> split(const std::vector<std::string>& pieces) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  const auto take = [&](std::string_view line) { lines.emplace_back(line); };
  for (const auto& piece : pieces) splitter.feed(piece, take);
  splitter.finish(take);
  return lines;
}

TEST(LineSplitter, GivesWholeLinesAndTheRestAtTheEnd) {
  EXPECT_THAT(split({"a\nb", "c\n", "\nd"}), ElementsAre("a", "bc", "", "d"));
  EXPECT_THAT(split({}), ElementsAre());
  EXPECT_THAT(split({"a\n"}), ElementsAre("a"));
}

TEST(LineSplitter, DoesNotDependOnHowTheBytesArrive) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "ab\n"[random() % 3];
    std::vector<std::string> pieces;
    for (size_t begin = 0; begin < text.size();) {
      const size_t size = 1 + random() % 7;
      pieces.push_back(text.substr(begin, size));
      begin += size;
    }
    EXPECT_EQ(split(pieces), split({text})) << text;
  }
}

TEST(LineSplitter, CutsALineThatNeverEnds) {
  const std::vector<std::string> pieces(40, std::string(LineSplitter::kLongest / 8, 'x'));
  for (const auto& line : split(pieces)) EXPECT_EQ(line.size(), LineSplitter::kLongest);
  EXPECT_EQ(split(pieces).size(), 5U);
}

TEST(VisiblePart, IsWhatStandsAfterTheLastRewrite) {
  EXPECT_EQ(visible_part("plain"), "plain");
  EXPECT_EQ(visible_part("10%\r20%\r30%"), "30%");
  EXPECT_EQ(visible_part("10%\r20%\r"), "20%");
  EXPECT_EQ(visible_part("dos line\r"), "dos line");
  EXPECT_EQ(visible_part("\r"), "");
}

TEST(LastLine, IsTheLastThatIsNotEmpty) {
  EXPECT_EQ(last_line("1.13.0\n"), "1.13.0");
  EXPECT_EQ(last_line("Traceback\nImportError: torch\n\n"), "ImportError: torch");
  EXPECT_EQ(last_line("\n\n"), "");
}

}  // namespace
}  // namespace lockstep::launch
