#include "lab/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lab/view_plan.h"
#include "lockstep/error.h"
#include "support/temporary_folder.h"

namespace lockstep::lab {
namespace {

using testing::HasSubstr;
using testing::Not;

nlohmann::json event(int rank, const char* kind, int peer, int count, int place) {
  return {{"rank", rank},   {"stream", 0}, {"kind", kind}, {"peer", peer}, {"count", count},
          {"place", place}, {"start", 0},  {"end", 2},     {"text", ""}};
}

nlohmann::json trace_of(int world, std::vector<nlohmann::json> events) {
  return {{"world", world}, {"time_us", 2}, {"events", std::move(events)}};
}

class View : public testing::Test {
 protected:
  View()
      : desk_{read_course(LOCKSTEP_TREE), folder_.path() / "my_work", {}}, lesson_(desk_.course.lesson(9)) {}

  void keep(const nlohmann::json& trace) { keep_trace(desk_, lesson_, trace.dump()); }
  std::string refusal() {
    try {
      view_data(desk_, lesson_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  test::TemporaryFolder folder_;
  Desk desk_;
  Lesson lesson_;
};

TEST_F(View, BeforeTheFirstCheckSaysWhatToDo) {
  EXPECT_THROW(view_data(desk_, lesson_), UsageError);
  EXPECT_THAT(refusal(), HasSubstr("09_ring_allreduce.json is not there"));
  EXPECT_THAT(refusal(), HasSubstr("hint: lockstep lab check 9 first"));
}

TEST_F(View, RefusesATraceThatIsNoneByFileAndValue) {
  keep_trace(desk_, lesson_, "{\"world\": 2");
  EXPECT_THAT(refusal(), HasSubstr("09_ring_allreduce.json: "));
  keep(trace_of(2, {event(0, "send", 1, 3, 0), event(2, "recv", 0, 3, 0)}));
  EXPECT_THAT(refusal(), HasSubstr("09_ring_allreduce.json: event 1: rank 2 of 2"));
  keep(trace_of(2, {event(0, "send", 7, 3, 0)}));
  EXPECT_THAT(refusal(), HasSubstr("event 0: peer 7 of 2"));
  keep(trace_of(2, {event(0, "shout", 1, 3, 0)}));
  EXPECT_THAT(refusal(), HasSubstr("kind shout"));
  keep({{"world", 2}, {"time_us", 2}, {"events", {{{"rank", 0}}}}});
  EXPECT_THAT(refusal(), HasSubstr("event 0: "));
}

TEST_F(View, HoldsTheTraceAsItIs) {
  const auto trace = trace_of(4, {event(0, "send", 1, 3, 9)});
  keep(trace);
  EXPECT_EQ(view_data(desk_, lesson_).at("trace"), trace);
}

TEST_F(View, EndsNoTagByWhatALearnerWrote) {
  auto note = event(0, "note", -1, 0, -1);
  note["text"] = "</script><script>alert(1)</script><!--";
  keep(trace_of(2, {note}));
  const auto page = view_page(desk_.course, view_data(desk_, lesson_));
  EXPECT_THAT(page, Not(HasSubstr("</script><script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<!--\"")));
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003cscript>alert(1)"));
}

TEST_F(View, IsOneFileWithNothingLeftToFill) {
  keep(trace_of(2, {event(0, "send", 1, 3, 0)}));
  const auto page = view_page(desk_.course, view_data(desk_, lesson_));
  for (const char* word : {"@STYLE@", "@SCRIPT@", "@DATA@", "src=", "href=", "@import", "fetch("})
    EXPECT_THAT(page, Not(HasSubstr(word)));
}

TEST_F(View, TellsOfAFileThatChangedSinceTheRun) {
  keep(trace_of(2, {event(0, "send", 1, 3, 0)}));
  EXPECT_EQ(view_data(desk_, lesson_).at("is_outdated"), false);
  std::ofstream(desk_.file(lesson_)) << "changed";
  std::filesystem::last_write_time(desk_.file(lesson_),
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(view_data(desk_, lesson_).at("is_outdated"), true);
}

TEST_F(View, OverwritesNobodysWork) {
  const auto file = folder_ / "notes.txt";
  std::ofstream(file) << "mine";
  EXPECT_THROW(write_view(file, "page"), UsageError);
  EXPECT_EQ(read_text(file), "mine");
  keep(trace_of(2, {event(0, "send", 1, 3, 0)}));
  const auto page = view_page(desk_.course, view_data(desk_, lesson_));
  write_view(folder_ / "new/page.html", page);
  write_view(folder_ / "new/page.html", page);
  EXPECT_EQ(read_text(folder_ / "new/page.html"), page);
}

TEST(PlanBeside, IsNullWithoutWords) {
  EXPECT_TRUE(plan_beside("", trace_of(2, {})).is_null());
}

TEST(PlanBeside, CountsWhatEachRankSends) {
  const auto plan = plan_beside("allreduce --algorithm naive --world 3 --count 10", trace_of(3, {}));
  EXPECT_EQ(plan.at("family"), "collective");
  EXPECT_EQ(plan.at("sent").at(0).at("bytes"), 80);
  EXPECT_EQ(plan.at("sent").at(1).at("bytes"), 40);
  EXPECT_EQ(plan.at("sent").at(1).at("messages"), 1);
  EXPECT_TRUE(plan.at("time_us").is_null()) << "no message tells what one costs";
}

TEST(PlanBeside, TakesItsTimeFromTheRunsMessages) {
  const auto plan = plan_beside("allreduce --algorithm ring --world 4 --count 12",
                                trace_of(4, {event(0, "send", 1, 3, 0), event(1, "send", 2, 3, 3)}));
  EXPECT_DOUBLE_EQ(plan.at("time_us").get<double>(), 6 * 2);
}

TEST(PlanBeside, IsMadeForTheRanksThatRan) {
  const auto plan = plan_beside("allreduce --algorithm ring --world 4 --count 12",
                                trace_of(2, {event(0, "send", 1, 3, 3)}));
  EXPECT_EQ(plan.at("words"), "allreduce --algorithm ring --world 2 --count 6");
  EXPECT_EQ(plan.at("sent").size(), 2U);
  const auto pipeline = plan_beside("pipeline --schedule gpipe --stages 4 --microbatches 3", trace_of(2, {}));
  EXPECT_EQ(pipeline.at("words"), "pipeline --schedule gpipe --stages 2 --microbatches 3");
  EXPECT_EQ(pipeline.at("actions").size(), 2U);
}

TEST(PlanBeside, PromisesNoBytesForABufferOfUnknownLength) {
  const auto plan = plan_beside("allreduce --algorithm ring --world 4 --count 12",
                                trace_of(2, {event(0, "send", 1, 50, -1)}));
  EXPECT_TRUE(plan.at("count").is_null());
  EXPECT_TRUE(plan.at("time_us").is_null());
  EXPECT_FALSE(plan.at("sent").at(0).contains("bytes"));
}

TEST(PlanBeside, RefusesWordsThatNameNoPlan) {
  EXPECT_THROW(plan_beside("allreduce", trace_of(2, {})), UsageError);
  EXPECT_THROW(plan_beside("allreduce --algorithm", trace_of(2, {})), UsageError);
  EXPECT_THROW(plan_beside("allreduce --algorithm magic", trace_of(2, {})), UsageError);
  EXPECT_THROW(plan_beside("allreduce --algorithm ring --world 2 --count many", trace_of(2, {})), UsageError);
}

}  // namespace
}  // namespace lockstep::lab
