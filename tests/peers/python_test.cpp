// A Python torch.distributed script on Gloo, unchanged, under our launcher.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/launched.h"
#include "support/temporary_folder.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

// Debian's python3-torch is seen by Debian's own Python alone, whichever python3 comes first on PATH.
// Debian 13 builds it without libuv, which it then asks for all the same, under any launcher, unless told not
// to.
const Child::Options kDebianPython = {
    .environment = {{"PYTHON_EXEC", "/usr/bin/python3"}, {"USE_LIBUV", "0"}}};

TEST(PythonTorch, AGlooScriptRunsUnchanged) {
  Child job({LOCKSTEP_COMMAND, "run", "--nproc_per_node", "2", LOCKSTEP_SCRIPT}, kDebianPython);
  ASSERT_EQ(job.wait(), 0) << job.errors();
  EXPECT_THAT(job.output(),
              AllOf(HasSubstr("[0:0] rank 0 of 2: sum 3, "), HasSubstr("[0:1] rank 1 of 2: sum 3, ")));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(PythonTorch, AFailingRankIsNamedWithItsTraceback) {
  Child job({LOCKSTEP_COMMAND, "run", "--nproc_per_node", "2", LOCKSTEP_SCRIPT, "--fail"}, kDebianPython);
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.errors(), AllOf(HasSubstr("lockstep run: rank 1 failed first: exit code 1"),
                                  ContainsRegex("\n    \\| .*RuntimeError: a failure of rank 1\n")));
  EXPECT_TRUE(job.leaves_nothing());
}

// A program of ours under plain torchrun. Debian 12's, with Python 3.11, fails unless it is told what to do
// with the ranks' output; Debian 13's has no libuv, without which it can meet in a file alone.
TEST(Torchrun, StartsOurRanksOnSharedMemoryAndOverGloo) {
  for (const char* engine : {"shm", "gloo"}) {
    Child::Options options = kDebianPython;
    options.environment["LOCKSTEP_ENGINE"] = engine;
    // Debian's PyTorch 2.6 has no libuv, without which torchrun opens no store of its own: it meets in a
    // file.
    options.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1";
    const TemporaryFolder folder;
    Child job({"/usr/bin/python3",
               "-m",
               "torch.distributed.run",
               "--nnodes",
               "1",
               "--rdzv_backend",
               "c10d",
               "--rdzv_conf",
               "store_type=file",
               "--rdzv_endpoint",
               (folder.path() / "store").string(),
               "--nproc_per_node",
               "2",
               "--redirects",
               "1",
               "--tee",
               "1",
               "--no_python",
               LOCKSTEP_ACTOR,
               "engine"},
              options);
    ASSERT_EQ(job.wait(), 0) << job.errors();
    EXPECT_THAT(job.output(), HasSubstr(engine));
    EXPECT_TRUE(job.leaves_nothing());
  }
}

}  // namespace
}  // namespace lockstep::test
