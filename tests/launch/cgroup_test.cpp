#include "launch/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

/// A made-up file tree with /proc/self and control groups.
class CgroupTree : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::path(testing::TempDir()) / "lockstep-cgroup-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  CgroupLimits limits() const { return cgroup_limits(root_); }

  void use_version_2(const std::string& group) {
    write("proc/self/cgroup", "0::" + group + "\n");
    write("proc/self/mountinfo",
          "22 1 0:5 / /proc rw - proc proc rw\n30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 "
          "cgroup2 rw\n");
  }
  void use_version_1(const std::string& group, const std::string& mount_root) {
    write("proc/self/cgroup", "4:memory:" + group + "\n3:cpuset:/\n2:cpu,cpuacct:" + group + "\n0::/\n");
    write("proc/self/mountinfo",
          "32 31 0:29 " + mount_root +
              " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n35 31 0:32 " + mount_root +
              " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  }

  fs::path root_;
};

TEST_F(CgroupTree, WithoutControlGroupsNothingIsLimited) {
  EXPECT_FALSE(limits().cpus);
  EXPECT_FALSE(limits().memory_bytes);
}

TEST_F(CgroupTree, ReadsVersion2) {
  use_version_2("/job");
  write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/job/memory.max", "1073741824\n");
  EXPECT_EQ(limits().cpus, 1.5);
  EXPECT_EQ(limits().memory_bytes, 1073741824U);
}

TEST_F(CgroupTree, MaxIsNoLimit) {
  use_version_2("/job");
  write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_FALSE(limits().cpus);
  EXPECT_FALSE(limits().memory_bytes);
}

TEST_F(CgroupTree, AParentsTighterLimitCounts) {
  use_version_2("/slurm/job/step");
  write("sys/fs/cgroup/slurm/job/step/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/slurm/job/cpu.max", "200000 100000\n");
  write("sys/fs/cgroup/slurm/cpu.max", "800000 100000\n");
  write("sys/fs/cgroup/slurm/memory.max", "4096\n");
  write("sys/fs/cgroup/slurm/job/step/memory.max", "8192\n");
  EXPECT_EQ(limits().cpus, 2.0);
  EXPECT_EQ(limits().memory_bytes, 4096U);
}

TEST_F(CgroupTree, ReadsVersion1) {
  use_version_1("/job", "/");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "65536\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limits().cpus, 3.0);
  EXPECT_EQ(limits().memory_bytes, 65536U);
}

TEST_F(CgroupTree, AContainerSeesItsOwnGroupAtTheMountPoint) {
  use_version_1("/docker/abc", "/docker/abc");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().cpus, 0.5);
}

TEST_F(CgroupTree, AGroupOutsideWhatIsMountedIsTheMountPoint) {
  use_version_1("/other/place", "/docker/abc");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "12288\n");
  EXPECT_EQ(limits().memory_bytes, 12288U);
}

TEST_F(CgroupTree, NonsenseIsNoLimit) {
  use_version_2("/job");
  write("sys/fs/cgroup/job/cpu.max", "0 0\n");
  write("sys/fs/cgroup/job/memory.max", "lots\n");
  write("proc/self/cgroup", "0::/job\nnonsense\n:\n");
  EXPECT_FALSE(limits().cpus);
  EXPECT_FALSE(limits().memory_bytes);
}

}  // namespace
}  // namespace lockstep::launch
