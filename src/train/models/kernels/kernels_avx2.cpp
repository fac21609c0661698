#include "train/models/kernels/kernels.h"
#include "train/models/kernels/simd.h"

#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE)

namespace lockstep::train::kernels {
namespace {
using Wide = Simd<32, 4, 2>;
using Narrow = Wide;
}  // namespace
}  // namespace lockstep::train::kernels

#define LOCKSTEP_KERNEL [[gnu::target("avx2,fma")]]
#include "train/models/kernels/kernel_set.h"

namespace lockstep::train::kernels {

const Kernels* avx2_kernels() {
  static constexpr Kernels kKernels = named("avx2");
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kKernels : nullptr;
}

}  // namespace lockstep::train::kernels

#else

namespace lockstep::train::kernels {

const Kernels* avx2_kernels() {
  return nullptr;
}

}  // namespace lockstep::train::kernels

#endif
