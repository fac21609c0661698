// `lockstep plan` as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/plan/all_reduce.h"
#include "lockstep/plan/json.h"
#include "lockstep/plan/text.h"
#include "support/child.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Finished plan_verb(std::vector<std::string> words) {
  words.insert(words.begin(), {LOCKSTEP_COMMAND, "plan"});
  return run_to_end(words);
}

TEST(PlanCommand, PrintsGridVerdictAndCostsWhateverTheSpelling) {
  const auto result = plan_verb({"allreduce", "--algorithm", "ring", "--world", "4"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(
      result.output,
      AllOf(HasSubstr("   0 | ->1 c3 <-3 c2 + |"),
            HasSubstr("proved   every rank ends with the sum of all 4 ranks, each contribution once"),
            HasSubstr("contributions tracked one by one"), HasSubstr("sent by a rank             6.00 MiB"),
            HasSubstr("rounds                            6")));
  for (const char* name : {"all_reduce", "all-reduce", "AllReduce"}) {
    EXPECT_EQ(plan_verb({name, "--algorithm", "Ring", "--world", "4"}).output, result.output);
  }
}

TEST(PlanCommand, ListsTheAlgorithmsOfACollective) {
  const auto result = plan_verb({"broadcast"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("  linear  "), HasSubstr("  binomial  "),
                                   HasSubstr("  scatter-all-gather   scatter down a tree")));
}

TEST(PlanCommand, ProvesLargeWorldsByFingerprintWithoutDrawingThem) {
  const auto result = plan_verb({"allreduce", "--algorithm", "tree", "--world", "100"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("(a grid of 100 ranks and 396 steps is too large to read"),
                                   HasSubstr("by number and 128-bit fingerprint")));
}

TEST(PlanCommand, WritesJsonThatReadsBackAndTellsRowsVerdictAndTraffic) {
  const auto result = plan_verb(
      {"reduce", "--algorithm", "binomial", "--world", "5", "--root", "2", "--count", "10", "--json"});
  EXPECT_EQ(result.exit_code, 0);
  const auto document = nlohmann::json::parse(result.output);
  EXPECT_EQ(document["verdict"]["ok"], true);
  EXPECT_EQ(document["verdict"]["exact"], true);
  EXPECT_EQ(document["traffic"]["bytes_per_rank"], 40);
  EXPECT_EQ(document["traffic"]["rounds"], 2);
  EXPECT_EQ(document["ranks"][1][0]["kind"], "send");
  EXPECT_EQ(document["ranks"][1][0]["row"], 2);
  EXPECT_EQ(plan::plan_from_json(document.dump()).root, 2);
}

TEST(PlanCommand, ReadsBackItsOwnTextAndJson) {
  const TemporaryFolder folder;
  for (const char* form : {"--text", "--json"}) {
    const auto written = plan_verb(
        {"allreduce", "--algorithm", "hierarchical", "--ranks-per-node", "2", "--world", "5", form});
    ASSERT_EQ(written.exit_code, 0) << written.errors;
    std::ofstream(folder / "plan") << written.output;
    const auto read = plan_verb({"--file", (folder / "plan").string(), form});
    EXPECT_EQ(read.exit_code, 0) << read.errors;
    EXPECT_EQ(read.output, written.output);
  }
}

TEST(PlanCommand, RefusesABadPlanWithExit1AndTheVerifiersWords) {
  const TemporaryFolder folder;
  std::string text = plan::to_string(plan::ring_all_reduce(3));
  text.replace(text.find("recv_reduce"), 11, "recv");
  std::ofstream(folder / "plan") << text;
  const auto result = plan_verb({"--file", (folder / "plan").string()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("refused  rank 0 "));
  EXPECT_EQ(nlohmann::json::parse(
                plan_verb({"--file", (folder / "plan").string(), "--json"}).output)["verdict"]["ok"],
            false);
}

TEST(PlanCommand, RefusesWhatIsNoPlanWithExit2ByLine) {
  const TemporaryFolder folder;
  const std::string path = (folder / "plan").string();
  const std::pair<std::string, std::string> cases[] = {
      {"plan all_reduce ring world 2\nrank 0\n", "plan text line 1: ends before 'root'"},
      {"{\"collective\":\n\n \"all_reduce\",,}", "plan json line 3: not valid JSON from here on"},
      {"{\"collective\": \"all_reduce\"}", "plan json /: 'algorithm' is missing"},
      {"", "plan text line 1: no plan"},
  };
  for (const auto& [text, problem] : cases) {
    std::ofstream(folder / "plan") << text;
    const auto result = plan_verb({"--file", path});
    EXPECT_EQ(result.exit_code, 2) << text;
    EXPECT_THAT(result.errors, HasSubstr("--file " + path + ": " + problem));
  }
  EXPECT_THAT(plan_verb({"--file", path + "x"}).errors, HasSubstr("cannot be read: No such file"));
  EXPECT_EQ(plan_verb({"--file", folder.path().string()}).exit_code, 2);
}

TEST(PlanCommand, RefusesBadUsageWithAHint) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "a collective or --file is missing"},
      {{"sum"}, "collective 'sum': unknown; hint: one of all_reduce"},
      {{"allreduce", "--algorithm", "rings"}, "all_reduce by 'rings': unknown algorithm; hint: one of naive"},
      {{"allreduce", "--algorithm", "ring", "--root", "1"}, "--root 1: all_reduce has no root"},
      {{"broadcast", "--algorithm", "linear", "--root", "4"}, "root 4 is not between 0 and 3"},
      {{"allreduce", "--algorithm", "hierarchical"}, "hint: --ranks-per-node 2"},
      {{"allreduce", "--algorithm", "ring", "--ranks-per-node", "2"},
       "only --algorithm hierarchical has nodes"},
      {{"allreduce", "--algorithm", "ring", "--world", "32768"}, "hint: a smaller world"},
      {{"allreduce", "--file", "x"}, "--file brings its own plan"},
  };
  for (const auto& [words, problem] : cases) {
    const auto result = plan_verb(words);
    EXPECT_EQ(result.exit_code, 2) << problem;
    EXPECT_THAT(result.errors, HasSubstr(problem));
  }
}

}  // namespace
}  // namespace lockstep::test
