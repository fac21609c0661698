#include "train/models/kernels/kernels.h"

#include "train/models/kernels/simd.h"

namespace lockstep::train::kernels {

namespace {
using Wide = Simd<16, 4, 2>;
using Narrow = Wide;
}  // namespace

}  // namespace lockstep::train::kernels

#define LOCKSTEP_KERNEL
#include "train/models/kernels/kernel_set.h"

namespace lockstep::train::kernels {

namespace {

const Kernels& fastest() {
  if (avx512_kernels() != nullptr) return *avx512_kernels();
  return avx2_kernels() != nullptr ? *avx2_kernels() : portable_kernels();
}

}  // namespace

const Kernels& portable_kernels() {
  static constexpr Kernels kKernels = named("portable");
  return kKernels;
}

const Kernels& kernels() {
  static const Kernels& chosen = fastest();
  return chosen;
}

}  // namespace lockstep::train::kernels
