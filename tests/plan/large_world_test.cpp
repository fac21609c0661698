// Proofs of large worlds, which take seconds and hundreds of megabytes: run in the release build alone.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "lockstep/plan/collectives.h"
#include "lockstep/plan/verify.h"

namespace lockstep::plan {
namespace {

struct Large {
  const char* algorithm;
  int world;
};

class LargeWorld : public testing::TestWithParam<Large> {};

TEST_P(LargeWorld, IsProvedInLessThanAGibibyte) {
  const Plan plan = make_plan(Collective::kAllReduce, GetParam().algorithm,
                              {.world = GetParam().world, .root = 0, .ranks_per_node = 8});
  const Verdict verdict = verify(plan);
  EXPECT_TRUE(verdict.ok) << verdict.problem;
  EXPECT_FALSE(verdict.exact);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 1 << 20) << "KiB";
}

INSTANTIATE_TEST_SUITE_P(AllReduce, LargeWorld,
                         testing::Values(Large{"ring", 4096}, Large{"tree", 4096},
                                         Large{"recursive-doubling", 4095}, Large{"halving-doubling", 4095},
                                         Large{"naive", 4096}, Large{"direct", 2048},
                                         Large{"all-to-all", 2048}, Large{"hierarchical", 2047},
                                         Large{"push", 512}),
                         [](const auto& test) {
                           std::string name = test.param.algorithm;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::plan
