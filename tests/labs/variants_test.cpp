// Proves of every lesson: the starter fails for the intended reason, the solution passes, each mutant is
// caught by its name.
#include "labs/variants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace lab {
namespace {

std::string test_name(const testing::TestParamInfo<Variant>& info) {
  return "lesson_" + info.param.lesson + "_" + info.param.name;
}

class Lesson : public testing::TestWithParam<Variant> {};

TEST_P(Lesson, IsJudgedAsItShould) {
  for (const uint64_t seed : {1, 7}) {
    const auto result = run_check(GetParam().check, {.seed = seed});
    const auto& failure = result.failure;
    EXPECT_EQ(failure.name, GetParam().refused) << failure.what << "\n" << failure.meaning;
    EXPECT_EQ(result.has_failed, !GetParam().refused.empty());
    if (result.has_failed) {
      EXPECT_GT(failure.what.size(), 10U) << "a failure says what was expected and what came";
      EXPECT_GT(failure.meaning.size(), 10U) << "a failure says what it means";
    } else {
      EXPECT_GE(result.proved.size(), 1U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Lesson, testing::ValuesIn(variants()), test_name);

TEST(Lessons, HaveTwoToFiveMutantsEach) {
  std::map<std::string, int> mutants;
  for (const auto& variant : variants()) {
    auto& count = mutants[variant.lesson];
    if (variant.name != "starter" && variant.name != "solution") ++count;
  }
  EXPECT_FALSE(mutants.empty());
  for (const auto& [lesson, count] : mutants) {
    EXPECT_GE(count, 2) << lesson;
    EXPECT_LE(count, 5) << lesson;
  }
}

// Here, since the sanitizers' memory is not limited.
TEST(Checker, NamesAnAllocationBeyondItsMemory) {
  const auto result = run_check(
      [](Checker& checker) {
        checker.in_part("grow");
        checker.in_child([] { return std::vector<char>(size_t{5} << 30).size(); });
        checker.proved("it fits");
      },
      {});
  EXPECT_EQ(result.failure.name, "out of memory");
  EXPECT_THAT(result.failure.what, testing::HasSubstr("grow: your code asked for more than the 4 GiB"));
}

}  // namespace
}  // namespace lab
