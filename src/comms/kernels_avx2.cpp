#include "comms/kernels_avx2.h"

#include <algorithm>
#include <cstring>

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

constexpr std::size_t kLine = 64;

std::size_t bytes_to_line(const void* address) {
  return (kLine - reinterpret_cast<uintptr_t>(address) % kLine) % kLine;
}

LOCKSTEP_AVX2 inline void stream_line(void* to, const void* from) {
  const auto* const source = static_cast<const __m256i*>(from);
  auto* const target = static_cast<__m256i*>(to);
  const __m256i left = _mm256_loadu_si256(source);
  const __m256i right = _mm256_loadu_si256(source + 1);
  _mm256_stream_si256(target, left);
  _mm256_stream_si256(target + 1, right);
}

LOCKSTEP_AVX2 void stream(void* to, const void* from, std::size_t bytes) {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  std::size_t i = std::min(bytes_to_line(target), bytes);
  std::memcpy(target, source, i);
  for (; i + kLine <= bytes; i += kLine) stream_line(target + i, source + i);
  std::memcpy(target + i, source + i, bytes - i);
}

void finish_streams() {
  _mm_sfence();
}

/// Streams if whole lines of c are whole lines of d.
struct StreamingAvx2 {
  template <FoldOp op, typename T>
  LOCKSTEP_AVX2 static void fold(const void* a, const void* b, void* c, void* d, int64_t count,
                                 double factor) {
    constexpr int64_t kPerLine = kLine / sizeof(T);
    const auto* const x = static_cast<const T*>(a);
    const auto* const y = static_cast<const T*>(b);
    auto* const first = static_cast<T*>(c);
    auto* const second = static_cast<T*>(d);
    const std::size_t head = bytes_to_line(first);
    if (head % sizeof(T) != 0 || (second != nullptr && head != bytes_to_line(second))) {
      return fold_loop<op, T>(a, b, c, d, count, factor);
    }
    int64_t i = std::min(static_cast<int64_t>(head / sizeof(T)), count);
    fold_loop<op, T>(x, y, first, second, i, factor);
    for (; i + kPerLine <= count; i += kPerLine) {
      alignas(kLine) T line[kPerLine];
      fold_loop<op, T>(x + i, y + i, line, nullptr, kPerLine, factor);
      stream_line(first + i, line);
      if (second != nullptr) stream_line(second + i, line);
    }
    fold_loop<op, T>(x + i, y + i, first + i, second == nullptr ? nullptr : second + i, count - i, factor);
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

// Sanitizers do not see streaming stores, and would miss races on them.
#if defined(LOCKSTEP_ASAN) || defined(LOCKSTEP_TSAN)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

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
                                 .narrow_bfloat16 = narrow_bfloat16,
                                 .streamed_fold = kSanitized ? nullptr : fold_of<StreamingAvx2>,
                                 .stream = kSanitized ? nullptr : stream,
                                 .finish_streams = finish_streams};
  return __builtin_cpu_supports("avx2") && has_f16c() ? &kAvx2 : nullptr;
}

#else

const Kernels* avx2_kernels() {
  return nullptr;
}

#endif

}  // namespace lockstep::comms
