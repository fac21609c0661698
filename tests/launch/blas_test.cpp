#include "launch/blas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace lockstep::launch {
namespace {

using testing::HasSubstr;

CpuFeatures cpu(const std::string& vendor, int tier) {
  CpuFeatures features;
  features.vendor = vendor;
  features.avx = tier >= 1;
  features.avx2 = features.fma = tier >= 2;
  features.avx512 = tier >= 3;
  return features;
}

OpenBlas chosen(const std::string& core) {
  OpenBlas openblas;
  openblas.found = true;
  openblas.core = core;
  return openblas;
}

struct Machine {
  const char* what;
  CpuFeatures features;
  const char* openblas_core;
  const char* expected;
};

TEST(ChooseCoretype, MendsMisreadingsAndNothingElse) {
  CpuFeatures avx2_without_fma = cpu("GenuineIntel", 2);
  avx2_without_fma.fma = false;
  const Machine machines[] = {
      {"Sapphire Rapids VM without AMX and bf16", cpu("GenuineIntel", 3), "Prescott", "SKYLAKEX"},
      {"Zen 4 that 0.3.21 does not know by its AVX-512", cpu("AuthenticAMD", 3), "Zen", "SKYLAKEX"},
      {"Zen 3 misread", cpu("AuthenticAMD", 2), "Barcelona", "ZEN"},
      {"Hygon misread", cpu("HygonGenuine", 2), "Prescott", "ZEN"},
      {"new Intel client CPU misread", cpu("GenuineIntel", 2), "Nehalem", "HASWELL"},
      {"AVX2 without FMA", avx2_without_fma, "Prescott", "SANDYBRIDGE"},
      {"Sandy Bridge misread", cpu("GenuineIntel", 1), "Prescott", "SANDYBRIDGE"},
      {"a name of a later OpenBLAS", cpu("GenuineIntel", 3), "SapphireRapids", ""},
      {"Cooper Lake", cpu("GenuineIntel", 3), "Cooperlake", ""},
      {"Skylake server", cpu("GenuineIntel", 3), "SkylakeX", ""},
      {"Zen 3", cpu("AuthenticAMD", 2), "Zen", ""},
      {"Zen 3 run with Haswell's kernels", cpu("AuthenticAMD", 2), "Haswell", ""},
      {"Steamroller", cpu("AuthenticAMD", 1), "Steamroller", ""},
      {"no AVX", cpu("GenuineIntel", 0), "Prescott", ""},
      {"no AVX, and OpenBLAS thinks better of it", cpu("GenuineIntel", 0), "Haswell", ""},
      {"no CPUID", CpuFeatures{}, "neoversen1", ""},
  };
  for (const auto& machine : machines) {
    const BlasChoice choice = choose_coretype(machine.features, chosen(machine.openblas_core), {});
    EXPECT_EQ(choice.coretype, machine.expected) << machine.what;
    EXPECT_THAT(choice.reason, HasSubstr(machine.openblas_core)) << machine.what;
  }
}

TEST(ChooseCoretype, NeverGoesAboveTheCpu) {
  for (const char* vendor : {"GenuineIntel", "AuthenticAMD", "HygonGenuine", "CentaurHauls", ""}) {
    for (int tier = 0; tier <= 3; ++tier) {
      for (const char* core : {"Prescott", "Sandybridge", "Haswell", "SkylakeX", "Unknown"}) {
        const BlasChoice choice = choose_coretype(cpu(vendor, tier), chosen(core), {});
        EXPECT_LE(kernel_tier(choice.coretype), tier) << vendor << " tier " << tier << " " << core;
      }
    }
  }
}

TEST(ChooseCoretype, LeavesTheUsersOwnSettingAlone) {
  const BlasChoice choice =
      choose_coretype(cpu("GenuineIntel", 3), chosen("Prescott"), {{"OPENBLAS_CORETYPE", "Prescott"}});
  EXPECT_EQ(choice.coretype, "");
  EXPECT_EQ(choice.reason, "OPENBLAS_CORETYPE=Prescott is the user's own setting");
}

TEST(ChooseCoretype, SaysWhyWhenThereIsNoOpenBlas) {
  OpenBlas missing;
  missing.problem = "libopenblas.so.0: no such file";
  const BlasChoice choice = choose_coretype(cpu("GenuineIntel", 3), missing, {});
  EXPECT_EQ(choice.coretype, "");
  EXPECT_EQ(choice.reason, "no OpenBLAS found: libopenblas.so.0: no such file");
}

TEST(KernelTier, KnowsOpenBlasNamesInAnyCase) {
  for (const char* core : {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Atom", "Nano", "Opteron",
                           "Opteron_SSE3", "Barcelona", "Bobcat", "Unknown", ""}) {
    EXPECT_EQ(kernel_tier(core), 0) << core;
  }
  EXPECT_EQ(kernel_tier("Sandybridge"), 1);
  EXPECT_EQ(kernel_tier("BULLDOZER"), 1);
  EXPECT_EQ(kernel_tier("Haswell"), 2);
  EXPECT_EQ(kernel_tier("zen"), 2);
  EXPECT_EQ(kernel_tier("Excavator"), 2);
  EXPECT_EQ(kernel_tier("SKYLAKEX"), 3);
  EXPECT_EQ(kernel_tier("SapphireRapids"), 3);
}

TEST(ProbeOpenBlas, NamesTheKernelsOfThisMachine) {
  const OpenBlas openblas = probe_openblas(current_environment());
  EXPECT_TRUE(openblas.found) << openblas.problem;
  EXPECT_NE(openblas.core, "");
  EXPECT_THAT(openblas.config, HasSubstr("OpenBLAS 0."));
}

#if defined(__x86_64__)
TEST(ProbeOpenBlas, HonoursTheGivenEnvironment) {
  Environment environment = current_environment();
  environment["OPENBLAS_CORETYPE"] = "Prescott";
  EXPECT_EQ(probe_openblas(environment).core, "Prescott");
  environment["OPENBLAS_CORETYPE"] = "Nehalem";
  EXPECT_EQ(probe_openblas(environment).core, "Nehalem");
}
#endif

TEST(ProbeOpenBlas, FindsOutALibraryThatMisreadsTheCpu) {
  Environment environment = current_environment();
  environment.erase("OPENBLAS_CORETYPE");
  environment["LD_LIBRARY_PATH"] = LOCKSTEP_FAKE_OPENBLAS;
  const OpenBlas openblas = probe_openblas(environment);
  ASSERT_TRUE(openblas.found) << openblas.problem;
  EXPECT_EQ(openblas.core, "Prescott");
  EXPECT_EQ(openblas.config, "OpenBLAS 0.0.0 fake");
  EXPECT_EQ(choose_coretype(cpu("GenuineIntel", 3), openblas, environment).coretype, "SKYLAKEX");
  EXPECT_EQ(choose_coretype(cpu("GenuineIntel", 3), openblas, environment).reason,
            "OpenBLAS takes this CPU for Prescott (SSE), but it has AVX-512");
}

TEST(ProbeOpenBlas, SaysWhatIsMissing) {
  const OpenBlas no_helper = probe_openblas(current_environment(), "/nonexistent/helper");
  EXPECT_FALSE(no_helper.found);
  EXPECT_EQ(no_helper.problem, "/nonexistent/helper: No such file or directory");
  const OpenBlas crashed = probe_openblas(current_environment(), "/bin/false");
  EXPECT_FALSE(crashed.found);
  EXPECT_EQ(crashed.problem, "loading OpenBLAS ended with exit code 1");
}

#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE)
/// The kernel lists a feature in /proc/cpuinfo only if it saves its registers too.
TEST(DetectCpu, AgreesWithTheKernel) {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  for (std::string line; std::getline(file, line) && flags.empty();) {
    if (line.starts_with("flags")) flags = line + " ";
  }
  const auto has = [&](const std::string& flag) { return flags.find(" " + flag + " ") != std::string::npos; };
  const CpuFeatures found = detect_cpu();
  EXPECT_EQ(found.avx, has("avx"));
  EXPECT_EQ(found.avx2, has("avx2"));
  EXPECT_EQ(found.fma, has("fma"));
  EXPECT_EQ(found.avx512,
            has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") && has("avx512cd"));
  EXPECT_EQ(found.vendor.size(), 12U);
}
#endif

}  // namespace
}  // namespace lockstep::launch
