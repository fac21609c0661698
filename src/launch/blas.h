#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "launch/cpu.h"
#include "launch/environment.h"

namespace lockstep::launch {

/// The OpenBLAS that a program started in some environment would load.
struct OpenBlas {
  bool found = false;
  std::string core;     ///< The CPU that its kernels are for, in OpenBLAS's own words, such as Haswell.
  std::string config;   ///< Its version and build options, one line.
  std::string problem;  ///< Why it was not found, one line.
};

/// Asks OpenBLAS which kernels it chooses in `environment`. A helper program loads it, since OpenBLAS reads
/// OPENBLAS_CORETYPE once, at load, and the loader reads LD_LIBRARY_PATH once, at start. About 5 ms; gives up
/// after 5 s. `helper` is lockstep-blas-probe, which lies beside `lockstep`.
OpenBlas probe_openblas(const Environment& environment, const std::filesystem::path& helper);

/// With the helper beside this very program.
OpenBlas probe_openblas(const Environment& environment);

/// The OPENBLAS_CORETYPE of the best kernels that this CPU can run; "" when it has none above OpenBLAS's
/// oldest.
std::string best_coretype(const CpuFeatures& cpu);

/// What instructions the kernels for a core use: 0 SSE (and names not known here), 1 AVX, 2 AVX2 with FMA,
/// 3 AVX-512. Upper and lower case are alike, as they are for OpenBLAS.
int kernel_tier(std::string_view core);

/// The name of a tier's instructions, for people.
std::string_view tier_name(int tier);

/// What the user asked OpenBLAS for; "" for nothing.
std::string asked_coretype(const Environment& environment);

/// The environment with OPENBLAS_CORETYPE set to `coretype`, or unset for "".
Environment with_coretype(Environment environment, const std::string& coretype);

struct BlasChoice {
  std::string coretype;  ///< Value for OPENBLAS_CORETYPE; "" leaves OpenBLAS alone.
  std::string reason;    ///< One line for people.
};

/// Mends OpenBLAS's choice where it takes the CPU for an older one. Never against the user's own setting, and
/// never kernels that the CPU cannot run.
BlasChoice choose_coretype(const CpuFeatures& cpu, const OpenBlas& openblas, const Environment& environment);

}  // namespace lockstep::launch
