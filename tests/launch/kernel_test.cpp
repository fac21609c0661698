#include "launch/kernel.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <iterator>

namespace lockstep::launch {
namespace {

std::ptrdiff_t open_files_now() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST(KernelFeatures, AreAllHereAndLeaveNothingOpen) {
  const auto before = open_files_now();
  const KernelFeatures found = kernel_features();
  EXPECT_EQ(found.pidfd_problem, "");
  EXPECT_EQ(found.subreaper_problem, "");
  EXPECT_EQ(found.memfd_problem, "");
  EXPECT_EQ(open_files_now(), before);
}

TEST(Limits, FollowThisProcess) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit lower = old;
  lower.rlim_cur = 123;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  EXPECT_EQ(limits().open_files, 123U);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_NE(limits().open_files, 123U);
}

}  // namespace
}  // namespace lockstep::launch
