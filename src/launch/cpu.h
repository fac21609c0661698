#pragma once

#include <string>

namespace lockstep::launch {

/// What decides which matrix kernels this CPU can run. A feature counts only if the operating system also
/// saves its registers (XCR0); otherwise its instructions fault.
struct CpuFeatures {
  std::string vendor;      ///< CPUID's twelve letters, such as GenuineIntel; "" where there is no CPUID.
  std::string model_name;  ///< CPUID's brand text; "" where there is none.
  bool avx = false;
  bool avx2 = false;
  bool fma = false;
  bool avx512 = false;  ///< F, BW, DQ, VL and CD: the set that Skylake servers have.
};

/// Asks CPUID. Empty on CPUs that have no CPUID, and in a portable build.
CpuFeatures detect_cpu();

}  // namespace lockstep::launch
