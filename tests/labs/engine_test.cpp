// The parts of `lockstep lab` that need no compiler: state, pages, expressions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/expression.h"
#include "lab/page.h"
#include "lab/state.h"
#include "lockstep/error.h"
#include "support/temporary_folder.h"

namespace lockstep::lab {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(LabState, IsReadAsItWasWritten) {
  const test::TemporaryFolder folder;
  const State state{.current = 9, .passed = {1, 9}, .skipped = {4}, .hints = {{9, 2}}};
  write_state(folder / "deep" / "progress.txt", state);
  const auto read = read_state(folder / "deep" / "progress.txt");
  EXPECT_EQ(read.current, 9);
  EXPECT_EQ(read.passed, state.passed);
  EXPECT_EQ(read.skipped, state.skipped);
  EXPECT_EQ(read.hints, state.hints);
  EXPECT_TRUE(read.is_done(4));
  EXPECT_FALSE(read.is_done(2));
}

TEST(LabState, IsTheBeginningWithoutAFile) {
  EXPECT_EQ(read_state("no/such/file").current, 0);
}

TEST(LabState, RefusesALineByNumber) {
  const test::TemporaryFolder folder;
  for (const char* const line : {"passed", "passed x", "passed 100", "hints 9", "hints 9 -1", "cheated 9"}) {
    test::write_file(folder / "progress.txt", std::string("passed 1\n") + line + "\n");
    try {
      read_state(folder / "progress.txt");
      FAIL() << line;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("progress.txt:2: '" + std::string(line) + "'"));
    }
  }
}

TEST(LabPage, FoldsAnswersUnlessAskedFor) {
  const std::string page =
      "# Title\n\nSome *strong* `code*` and 2 * 3 "
      "[text](a/b.md).\n\n<details><summary>Why?</summary>\n\nBecause.\n</details>\n";
  const auto folded = page_text(page, {}, false);
  EXPECT_THAT(folded, HasSubstr("Title\n"));
  EXPECT_THAT(folded, HasSubstr("Some strong `code*` and 2 * 3 text."));
  EXPECT_THAT(folded, HasSubstr("? Why?"));
  EXPECT_THAT(folded, Not(HasSubstr("Because")));
  EXPECT_THAT(page_text(page, {}, true), HasSubstr("Because."));
}

TEST(LabPage, LeavesCodeAsItIs) {
  EXPECT_THAT(page_text("```\n  a  *b* [c](d)\n```\n", {}, true), HasSubstr("      a  *b* [c](d)\n"));
}

TEST(LabExpression, KnowsArithmetic) {
  const std::map<std::string, double> letters = {{"P", 4}, {"S", 100}};
  EXPECT_DOUBLE_EQ(evaluate("2 * (P - 1) * S / P", letters), 150);
  EXPECT_DOUBLE_EQ(evaluate("-P + pow(2, ceil(log2(P + 1)))", letters), 4);
  EXPECT_DOUBLE_EQ(evaluate("min(P, S) + max(1.5, floor(2.7))", letters), 6);
  EXPECT_DOUBLE_EQ(evaluate("S - 30 - 20 + 10", letters), 60) << "from left to right";
  EXPECT_DOUBLE_EQ(evaluate("S / 5 / P * 2", letters), 10);
}

TEST(LabExpression, RefusesByPlace) {
  for (const char* const text : {"", "2 *", "(1", "x", "sin(1)", "1 2", "min(1)"})
    EXPECT_THROW(evaluate(text, {}), Error) << text;
}

TEST(LabExpression, WritesNumbersAsPeopleDo) {
  EXPECT_EQ(number_text(150), "150");
  EXPECT_EQ(number_text(0.27272), "0.273");
  EXPECT_EQ(number_text(999999999999999), "999999999999999");
  EXPECT_EQ(number_text(1e15), "1e+15");
}

}  // namespace
}  // namespace lockstep::lab
