#pragma once

#include "comms/kernels.h"

// Defined where this build may use instructions that only some CPUs have, after asking the CPU.
#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE)
#define LOCKSTEP_HAS_AVX2_KERNELS
#endif

namespace lockstep::comms {

/// For CPUs with AVX2 and F16C; null if this one, or this build, is not of that kind.
const Kernels* avx2_kernels();

}  // namespace lockstep::comms
