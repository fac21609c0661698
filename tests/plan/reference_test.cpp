// Plans on real buffers, by an executor that shares nothing with the verifier.
#include "plan/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/plan/text.h"
#include "plan/shapes.h"

namespace lockstep::plan {
namespace {

class OnBuffers : public testing::TestWithParam<Algorithm> {};

TEST_P(OnBuffers, EveryRankEndsWithWhatIsPromisedForEveryCount) {
  for (const int world : {1, 2, 3, 4, 5, 7, 8}) {
    for (const Plan& plan : plans_of(GetParam(), world)) {
      for (const Count count : {0, 1, world - 1, world, world + 1, 100}) {
        for (const uint64_t seed : {0U, 1U, 2U}) {
          ASSERT_EQ(reference::fault_of(plan, count, seed), "") << "count " << count << "\n"
                                                                << to_string(plan);
        }
      }
      ASSERT_EQ(reference::order_fault_of(plan, 3 * plan.chunks, 1), "") << to_string(plan);
    }
    ASSERT_EQ(reference::fault_of(plans_of(GetParam(), world).front(), 1000, 5), "");
  }
}

TEST_P(OnBuffers, ChunksCoverTheDataOnce) {
  for (const int world : {1, 3, 8}) {
    for (const Plan& plan : plans_of(GetParam(), world)) {
      for (const Count count : {0, 1, 7, 1000}) {
        const Count all = plan.division == Division::kSplit ? count : count * plan.chunks;
        Count next = 0;
        for (int chunk = 0; chunk < plan.chunks; ++chunk) {
          ASSERT_EQ(chunk_begin(plan, count, chunk), next);
          next += chunk_elements(plan, count, chunk, 1);
        }
        ASSERT_EQ(next, all);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, OnBuffers, testing::ValuesIn(algorithms()),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace lockstep::plan
