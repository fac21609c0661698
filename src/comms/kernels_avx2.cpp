#include "comms/kernels_avx2.h"

#include "comms/kernel_loops.h"

#ifdef LOCKSTEP_HAS_AVX2_KERNELS
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace lockstep::comms {

#ifdef LOCKSTEP_HAS_AVX2_KERNELS

namespace {

#define LOCKSTEP_AVX2 [[gnu::target("avx2,f16c")]]

struct Avx2 {
  template <FoldOp op, typename T>
  LOCKSTEP_AVX2 static void fold(const void* a, const void* b, void* c, void* d, int64_t count,
                                 double factor) {
    fold_loop<op, T>(a, b, c, d, count, factor);
  }
};

LOCKSTEP_AVX2 void widen_float16(const Float16* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  widen_loop(from + i, to + i, count - i);
}

LOCKSTEP_AVX2 void narrow_float16(const float* from, Float16* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  narrow_loop(from + i, to + i, count - i);
}

LOCKSTEP_AVX2 void widen_bfloat16(const BFloat16* from, float* to, int64_t count) {
  widen_loop(from, to, count);
}

LOCKSTEP_AVX2 void narrow_bfloat16(const float* from, BFloat16* to, int64_t count) {
  narrow_loop(from, to, count);
}

/// clang's __builtin_cpu_supports does not know F16C.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

const Kernels* avx2_kernels() {
  static constexpr Kernels kAvx2{.fold = fold_of<Avx2>,
                                 .widen_float16 = widen_float16,
                                 .widen_bfloat16 = widen_bfloat16,
                                 .narrow_float16 = narrow_float16,
                                 .narrow_bfloat16 = narrow_bfloat16};
  return __builtin_cpu_supports("avx2") && has_f16c() ? &kAvx2 : nullptr;
}

#else

const Kernels* avx2_kernels() {
  return nullptr;
}

#endif

}  // namespace lockstep::comms
