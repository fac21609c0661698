#include "launch/hostlist.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

using std::string_view_literals::operator""sv;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ExpandHostlist, ReadsNamesWithoutBrackets) {
  EXPECT_THAT(expand_hostlist("localhost"), ElementsAre("localhost"));
  EXPECT_THAT(expand_hostlist("b-2.cluster_x,a1"), ElementsAre("b-2.cluster_x", "a1"));
}

TEST(ExpandHostlist, ExpandsRangesAndKeepsZeroPadding) {
  EXPECT_THAT(expand_hostlist("tux[1-3,07]"), ElementsAre("tux1", "tux2", "tux3", "tux07"));
  EXPECT_THAT(expand_hostlist("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(expand_hostlist("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(expand_hostlist("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(expand_hostlist("n[0]"), ElementsAre("n0"));
}

TEST(ExpandHostlist, TurnsTheLastOfSeveralBracketsFastest) {
  EXPECT_THAT(expand_hostlist("a[01-02]b[3-4]"), ElementsAre("a01b3", "a01b4", "a02b3", "a02b4"));
  EXPECT_THAT(expand_hostlist("r[1-2][5,9]-ib,login"),
              ElementsAre("r15-ib", "r19-ib", "r25-ib", "r29-ib", "login"));
}

TEST(ExpandHostlist, RefusesByOriginPositionAndText) {
  EXPECT_THAT(
      [] { expand_hostlist("tux[1-", "SLURM_STEP_NODELIST"); },
      ThrowsMessage<UsageError>("SLURM_STEP_NODELIST: 'tux[1-' cannot be read: at position 7 a number is "
                                "expected, found the end; hint: it reads like tux[1-3,07],login"));
  EXPECT_THAT(
      [] { expand_hostlist("tux[3-1]"); },
      ThrowsMessage<UsageError>(HasSubstr("at position 7 a number from 3 on is expected, found '1]'")));
  EXPECT_THAT([] { expand_hostlist("tux 1"); }, ThrowsMessage<UsageError>(HasSubstr("at position 4")));
  EXPECT_THAT([] { expand_hostlist("n[1-03]"); },
              ThrowsMessage<UsageError>(HasSubstr("at position 5 a number as wide as the range's first")));
}

TEST(ExpandHostlist, RefusesWhatIsNoList) {
  for (const char* text :
       {"",      ",",     "a,",    ",a",    "a,,b",   "a[",       "a]",     "[]",    "a[]",
        "a[1",   "a[1,]", "a[,1]", "a[1-]", "a[-1]",  "a[1-2-3]", "a[[1]]", "a[1]]", "a[x]",
        "a[1 ]", "a b",   "a\n",   "a;b",   "a[0x1]", "(null)",   "a:1"}) {
    EXPECT_THROW(expand_hostlist(text), UsageError) << text;
  }
  EXPECT_THROW(expand_hostlist(std::string_view("a\0b", 3)), UsageError);
}

TEST(ExpandHostlist, ShowsNoControlCharacterOfTheInput) {
  EXPECT_THAT([] { expand_hostlist("a\x1b[2J"); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("a\\x1b[2J"), testing::Not(HasSubstr("\x1b")))));
}

TEST(ExpandHostlist, StopsHostileInputBeforeItEatsMemory) {
  EXPECT_EQ(expand_hostlist("n[1-65536]").size(), kMaxHosts);
  const auto too_many = ThrowsMessage<UsageError>(HasSubstr("at most 65536 hosts"));
  EXPECT_THAT([] { expand_hostlist("n[1-65537]"); }, too_many);
  EXPECT_THAT([] { expand_hostlist("n[0-999999999]"); }, too_many);
  EXPECT_THAT([] { expand_hostlist("n[1-65536],m"); }, too_many);
  EXPECT_THAT([] { expand_hostlist("n[1-65536,1]"); }, too_many);
  EXPECT_THAT([] { expand_hostlist("[1-300][1-300]"); }, too_many);
  EXPECT_THAT([] { expand_hostlist("[0-9999][0-9999][0-9999][0-9999][0-9999][0-9999]"); }, too_many);
  EXPECT_THAT([] { expand_hostlist("n[1-9999999999]"); },
              ThrowsMessage<UsageError>(HasSubstr("between 0 and 999999999")));
}

TEST(ExpandHostlist, BoundsTheLengthOfNames) {
  EXPECT_EQ(expand_hostlist(std::string(253, 'a')).front().size(), kMaxHostLength);
  EXPECT_THROW(expand_hostlist(std::string(254, 'a')), UsageError);
  EXPECT_THROW(expand_hostlist("n[" + std::string(100'000, '0') + "]"), UsageError);
  std::string brackets;
  for (int i = 0; i < 254; ++i) brackets += "[1]";
  EXPECT_THROW(expand_hostlist(brackets), UsageError);
}

// A hostlist together with what it stands for, told apart from any parser.
struct Sample {
  std::string text;
  std::vector<std::string> hosts;
};

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  int below(int limit) { return std::uniform_int_distribution(0, limit - 1)(random_); }

  std::string literal() {
    static constexpr std::string_view kLetters = "abcXYZ019-_.";
    std::string text;
    for (int i = 0, n = 1 + below(4); i < n; ++i)
      text += kLetters[static_cast<std::size_t>(below(kLetters.size()))];
    return text;
  }

  Sample bracket() {
    Sample sample{"[", {}};
    for (int i = 0, n = 1 + below(3); i < n; ++i) {
      const int width = 1 + below(4);
      const int low = below(120);
      const int count = 1 + below(6);
      if (i > 0) sample.text += ',';
      sample.text += padded(low, width);
      if (count > 1 || below(4) == 0) sample.text += "-" + padded(low + count - 1, width);
      for (int k = low; k < low + count; ++k) sample.hosts.push_back(padded(k, width));
    }
    sample.text += ']';
    return sample;
  }

  Sample element() {
    Sample sample{"", {""}};
    for (int i = 0, n = 1 + below(3); i < n; ++i) {
      const std::string text = literal();
      const Sample part = below(2) == 0 ? bracket() : Sample{text, {text}};
      sample.text += part.text;
      std::vector<std::string> hosts;
      for (const auto& host : sample.hosts) {
        for (const auto& end : part.hosts) hosts.push_back(host + end);
      }
      sample.hosts = std::move(hosts);
    }
    return sample;
  }

  Sample list() {
    Sample sample = element();
    for (int i = below(3); i > 0; --i) {
      Sample more = element();
      sample.text += ',' + more.text;
      sample.hosts.insert(sample.hosts.end(), more.hosts.begin(), more.hosts.end());
    }
    return sample;
  }

 private:
  static std::string padded(int number, int width) {
    std::string digits = std::to_string(number);
    const auto wanted = static_cast<std::size_t>(width);
    return digits.size() < wanted ? std::string(wanted - digits.size(), '0') + digits : digits;
  }

  std::mt19937 random_;
};

TEST(ExpandHostlist, GivesTheHostsThatRandomListsWereMadeOf) {
  Generator generator(20240611);
  for (int i = 0; i < 3000; ++i) {
    const Sample sample = generator.list();
    ASSERT_EQ(expand_hostlist(sample.text), sample.hosts) << sample.text;
  }
}

// The answer must be a refusal, or hosts that could have been meant: bounded, and of the allowed characters.
TEST(ExpandHostlist, RefusesOrBoundsEveryDamagedList) {
  Generator generator(7);
  static constexpr std::string_view kBytes = "[],-09a \n\0x("sv;
  for (int i = 0; i < 3000; ++i) {
    std::string text = generator.element().text;
    const auto at = static_cast<std::size_t>(generator.below(static_cast<int>(text.size())));
    text[at] = kBytes[static_cast<std::size_t>(generator.below(static_cast<int>(kBytes.size())))];
    try {
      const auto hosts = expand_hostlist(text);
      ASSERT_TRUE(!hosts.empty() && hosts.size() <= kMaxHosts) << text;
      for (const auto& host : hosts) ASSERT_EQ(host.find_first_of("[], \n("), std::string::npos) << text;
    } catch (const UsageError&) {
    }
  }
}

TEST(ExpandTasksPerNode, ExpandsRepetitions) {
  EXPECT_THAT(expand_tasks_per_node("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(expand_tasks_per_node("4"), ElementsAre(4));
  EXPECT_THAT(expand_tasks_per_node("1,2,1(x2)"), ElementsAre(1, 2, 1, 1));
}

TEST(ExpandTasksPerNode, RefusesByOriginPositionAndText) {
  EXPECT_THAT([] { expand_tasks_per_node("2(3)", "SLURM_STEP_TASKS_PER_NODE"); },
              ThrowsMessage<UsageError>(
                  "SLURM_STEP_TASKS_PER_NODE: '2(3)' cannot be read: at position 3 'x' is expected, "
                  "found '3)'; hint: it reads like 2(x3),1"));
  for (const char* text : {"", "0", "2,", ",2", "2(x0)", "2(x)", "2(x2", "(x2)", "-1", "2x3", "2(x2)1", " 2",
                           "a", "2(x65537)", "1(x65536),1", "16777217", "99999999999"}) {
    EXPECT_THROW(expand_tasks_per_node(text), UsageError) << text;
  }
}

TEST(ExpandTasksPerNode, GivesTheCountsThatRandomTextsWereMadeOf) {
  Generator generator(11);
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    std::vector<int> expected;
    for (int k = 0, n = 1 + generator.below(5); k < n; ++k) {
      const int tasks = 1 + generator.below(200);
      const int nodes = 1 + generator.below(40);
      if (k > 0) text += ',';
      text += nodes == 1 && generator.below(2) == 0 ? std::to_string(tasks)
                                                    : fmt::format("{}(x{})", tasks, nodes);
      expected.insert(expected.end(), static_cast<std::size_t>(nodes), tasks);
    }
    ASSERT_EQ(expand_tasks_per_node(text), expected) << text;
  }
}

}  // namespace
}  // namespace lockstep::launch
