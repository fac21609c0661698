#include "lockstep/trace/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "lockstep/error.h"
#include "lockstep/trace/json.h"
#include "lockstep/trace/session.h"
#include "lockstep/trace/writer.h"
#include "support/refusal.h"
#include "support/temporary_folder.h"
#include "trace/samples.h"

namespace lockstep::trace {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> files_in(const test::TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

Trace one_rank(int rank, int64_t offset_ns, std::vector<int64_t> begins_ns, std::string job = "") {
  Trace trace{
      .ranks = {{.rank = rank, .job = std::move(job), .clock_offset_ns = offset_ns, .monotonic_ns = 50}}};
  for (const int64_t begin_ns : begins_ns) {
    trace.spans.push_back({.rank = rank, .begin_ns = begin_ns, .end_ns = begin_ns + 5});
  }
  return trace;
}

TEST(TraceMerge, OrdersSpansOnTheCommonClock) {
  const Trace merged = merge({one_rank(2, 100, {0, 20}), one_rank(0, 0, {90, 110, 130})});
  std::vector<std::pair<int, int64_t>> order;
  for (const Span& span : merged.spans) order.emplace_back(span.rank, span.begin_ns);
  EXPECT_THAT(order, ElementsAre(std::pair{0, 90}, std::pair{2, 100}, std::pair{0, 110}, std::pair{2, 120},
                                 std::pair{0, 130}));
  EXPECT_EQ(merged.spans[1].end_ns, 105);
  ASSERT_EQ(merged.ranks.size(), 2U);
  EXPECT_EQ(merged.ranks[1].clock_offset_ns, 0);
  EXPECT_EQ(merged.ranks[1].monotonic_ns, 150);
  EXPECT_EQ(merge({merged}), merged);
  EXPECT_EQ(merge({}), Trace{});
}

TEST(TraceMerge, RefusesWhatDoesNotBelongTogether) {
  EXPECT_THAT(test::refusal_of<Error>([] {
                merge({one_rank(1, 0, {}), one_rank(1, 0, {})});
              }),
              StartsWith("trace merge: rank 1 is there twice"));
  EXPECT_THAT(test::refusal_of<Error>([] {
                merge({one_rank(0, 0, {}, "new"), one_rank(1, 0, {}, "old")});
              }),
              StartsWith("trace merge: rank 1 is of job \"old\", ranks before it of job \"new\""));
  EXPECT_THAT(test::refusal_of<Error>([] { merge({one_rank(0, 9, {kLargest - 9})}); }),
              StartsWith("trace merge: rank 0: 1152921504606846972 ns with clock offset 9 ns"));
  EXPECT_THAT(test::refusal_of<Error>([] { merge({{.spans = {{.rank = 4}}}}); }),
              StartsWith("trace merge: a span of rank 4"));
}

TEST(TraceFile, IsWrittenWholeOrNotAtAll) {
  const test::TemporaryFolder folder;
  write_file(folder / "a.json", "old");
  write_file(folder / "a.json", to_json(sample()));
  EXPECT_EQ(read(folder / "a.json"), sample());
  EXPECT_THAT(files_in(folder), ElementsAre("a.json"));
  EXPECT_THAT(test::refusal_of<Error>([&] { write_file(folder / "no/a.json", "x"); }),
              AllOf(StartsWith("trace: cannot write /"), HasSubstr("No such file")));
}

TEST(TraceFile, OfAFolderIsThatOfAllRanks) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(test::refusal_of<Error>([&] { read(folder.path()); }), HasSubstr("has no rank_<k>.json"));
  write_file(folder / "rank_10.json", to_json(one_rank(10, 0, {7})));
  write_file(folder / "rank_9.json", to_json(one_rank(9, 0, {8})));
  write_file(folder / "rank_9.json.1.partial", "{");
  write_file(folder / "rank_x.json", "{");
  EXPECT_EQ(read(folder.path()), merge({one_rank(10, 0, {7}), one_rank(9, 0, {8})}));
  write_file(folder / "rank_9.json", "{\n");
  EXPECT_THAT(test::refusal_of<Error>([&] { read(folder.path()); }),
              AllOf(StartsWith("trace /"), HasSubstr("rank_9.json: trace json line 2: no valid JSON")));
  EXPECT_THAT(test::refusal_of<Error>([&] { read(folder / "gone"); }),
              HasSubstr("gone: cannot be read: No such file"));
}

class TraceEnvironment : public testing::Test {
 protected:
  ~TraceEnvironment() override {
    unsetenv("LOCKSTEP_TRACE");
    unsetenv("LOCKSTEP_JOB_ID");
  }
  void turn_on(const std::filesystem::path& path) { setenv("LOCKSTEP_TRACE", path.c_str(), 1); }

  test::TemporaryFolder folder_;
  const Name name_{"data"};
};

TEST_F(TraceEnvironment, IsOffUnlessItNamesAFolder) {
  EXPECT_FALSE(start_from_environment(0));
  turn_on("");
  EXPECT_FALSE(start_from_environment(0));
  EXPECT_FALSE(enabled());
}

TEST_F(TraceEnvironment, RefusesAFolderThatCannotBe) {
  write_file(folder_ / "file", "");
  turn_on(folder_ / "file");
  EXPECT_THAT(
      test::refusal_of<Error>([] { start_from_environment(0); }),
      AllOf(StartsWith("trace: LOCKSTEP_TRACE=\"/"), HasSubstr("hint: name a folder that you may write")));
  EXPECT_FALSE(enabled());
}

TEST_F(TraceEnvironment, WritesAFilePerRankAtStop) {
  turn_on(folder_ / "made/for/it");
  setenv("LOCKSTEP_JOB_ID", "job-9", 1);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      EXPECT_TRUE(start_from_environment(rank));
      if (rank > 0) const Scope scope(name_, {.call = rank});
    });
  }
  for (std::thread& rank : ranks) rank.join();
  set_clock_offset_ns(-5);
  const Trace trace = stop();
  for (int rank = 0; rank < 3; ++rank) {
    const Trace own = read(folder_ / ("made/for/it/rank_" + std::to_string(rank) + ".json"));
    ASSERT_EQ(own.ranks.size(), 1U);
    EXPECT_EQ(own.ranks[0].rank, rank);
    EXPECT_EQ(own.ranks[0].job, "job-9");
    EXPECT_EQ(own.ranks[0].clock_offset_ns, -5);
    EXPECT_EQ(own.spans.size(), rank > 0 ? 1U : 0U);
  }
  EXPECT_EQ(read(folder_ / "made/for/it"), merge({trace}));
}

TEST_F(TraceEnvironment, WritesAtTheEndOfTheProcessButNotForItsChildren) {
  turn_on(folder_.path());
  const pid_t child = fork();
  if (child == 0) {
    start_from_environment(5);
    { const Scope scope(name_); }
    if (fork() == 0) std::exit(0);
    wait(nullptr);
    const bool empty = std::filesystem::is_empty(folder_.path());
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the end of the process is the point.
    std::exit(empty ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(files_in(folder_), ElementsAre("rank_5.json"));
  EXPECT_EQ(read(folder_.path()).spans.size(), 1U);
}

}  // namespace
}  // namespace lockstep::trace
