#include "lockstep/plan/pipeline_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/error.h"
#include "lockstep/plan/pipeline_simulate.h"
#include "plan/pipeline_shapes.h"

namespace lockstep::plan {
namespace {

using testing::HasSubstr;

TEST(PipelineGrid, DrawsAColumnForEachCycleAndADotForEachThatIsLost) {
  EXPECT_EQ(pipeline_grid(make_pipeline_plan("1f1b", {.ranks = 2, .microbatches = 3})),
            "cycle    0              5              10\n"
            "rank 0 | F0 F1 .  .  B0--- F2 B1--- .  B2---\n"
            "rank 1 | .  F0 B0--- F1 B1--- F2 B2--- .  .\n"
            "(F0 forward of micro-batch 0; B backward; . nothing to do)\n");
}

TEST(PipelineGrid, DrawsSplitBackwards) {
  EXPECT_EQ(pipeline_grid(make_pipeline_plan("zb-h1", {.ranks = 2, .microbatches = 2})),
            "cycle    0              5\n"
            "rank 0 | F0 F1 .  I0 W0 I1 W1\n"
            "rank 1 | .  F0 I0 F1 I1 W0 W1\n"
            "(F0 forward of micro-batch 0; I input-grad; W weight-grad; . nothing to do)\n");
}

TEST(PipelineGrid, NamesStagesWhereRanksHaveSeveral) {
  EXPECT_EQ(pipeline_grid(make_pipeline_plan("interleaved", {.ranks = 2, .microbatches = 2, .chunks = 2})),
            "cycle    0                   5                   10\n"
            "rank 0 | 0F0 0F1 2F0 2F1 .   .   2B0---- .   2B1---- 0B0---- 0B1----\n"
            "rank 1 | .   1F0 1F1 3F0 3B0---- 3F1 3B1---- 1B0---- 1B1---- .   .\n"
            "(0F0 forward of stage 0, micro-batch 0; B backward; . nothing to do)\n");
}

TEST(PipelineGrid, FoldsWhatIsWide) {
  const std::string grid = pipeline_grid(make_pipeline_plan("naive", {.ranks = 4, .microbatches = 8}));
  EXPECT_THAT(grid, HasSubstr("\n\ncycle    30  "));
  EXPECT_THAT(grid, HasSubstr("\n\ncycle    90  "));
}

class EveryPipelineGrid : public testing::TestWithParam<Schedule> {};

TEST_P(EveryPipelineGrid, FitsInto110ColumnsAndHasADotForEachIdleCycle) {
  for (const auto& shape : shapes_of(GetParam(), 6, 13)) {
    const PipelinePlan plan = make_pipeline_plan(GetParam().name, shape);
    std::istringstream lines(pipeline_grid(plan));
    int dots = 0;
    for (std::string line; std::getline(lines, line);) {
      ASSERT_LE(line.size(), 110U) << line;
      if (line.starts_with("rank ")) dots += static_cast<int>(std::count(line.begin(), line.end(), '.'));
    }
    const double cycles = simulate_pipeline(plan).makespan * shape.chunks;
    const double work = 3.0 * shape.microbatches * shape.chunks;
    ASSERT_NEAR(dots, shape.ranks * (cycles - work), 1e-6) << shape_text(shape);
  }
}

INSTANTIATE_TEST_SUITE_P(Pipelines, EveryPipelineGrid, testing::ValuesIn(schedules()),
                         [](const auto& test) { return test_name(test.param); });

TEST(PipelineGrid, RefusesWhatNobodyCanReadAndWhatIsNoPlan) {
  EXPECT_THROW(pipeline_grid(make_pipeline_plan("gpipe", {.ranks = 65, .microbatches = 1})), UsageError);
  try {
    pipeline_grid(make_pipeline_plan("gpipe", {.ranks = 8, .microbatches = 1000}));
    ADD_FAILURE() << "drawn";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "a grid of 8 ranks and 3021 cycles is too large to read (at most 64 ranks and 16384 cells); "
                 "hint: draw fewer micro-batches, or print the text form");
  }
  EXPECT_THROW(pipeline_grid({}), UsageError);
}

}  // namespace
}  // namespace lockstep::plan
