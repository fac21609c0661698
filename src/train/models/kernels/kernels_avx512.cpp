#include "train/models/kernels/kernels.h"
#include "train/models/kernels/simd.h"

#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE)

namespace lockstep::train::kernels {
namespace {
using Wide = Simd<64, 4, 4>;
// Less of the triangle is computed in vain.
using Narrow = Simd<32, 4, 2>;
}  // namespace
}  // namespace lockstep::train::kernels

#define LOCKSTEP_KERNEL [[gnu::target("avx512f,avx512dq,avx512vl,avx2,fma")]]
#include "train/models/kernels/kernel_set.h"

namespace lockstep::train::kernels {

const Kernels* avx512_kernels() {
  static constexpr Kernels kKernels = named("avx512");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl")
             ? &kKernels
             : nullptr;
}

}  // namespace lockstep::train::kernels

#else

namespace lockstep::train::kernels {

const Kernels* avx512_kernels() {
  return nullptr;
}

}  // namespace lockstep::train::kernels

#endif
