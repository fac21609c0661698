#pragma once

#include <cstdint>
#include <cstring>

/// Vectors of floats as wide as a set of kernels has them, in the compiler's own vector types. All of this is
/// inlined into functions that say which instructions the compiler may use.
namespace lockstep::train::kernels {

#define LOCKSTEP_KERNEL_INLINE [[gnu::always_inline]] inline

/// `kBytes` of a vector, and the rows and vectors of a tile of products that fits into registers.
template <int kBytes, int kTileRows, int kTileVectors>
struct Simd {
  typedef float Floats __attribute__((vector_size(kBytes)));
  typedef int32_t Ints __attribute__((vector_size(kBytes)));
  static constexpr int64_t kLanes = kBytes / 4;
  static constexpr int kRows = kTileRows;  ///< Divides kLanes.
  static constexpr int kVectors = kTileVectors;
};

// No vector is passed by value: how that is done depends on the instructions that a function may use.

template <typename Vector, typename T>
LOCKSTEP_KERNEL_INLINE void load(Vector& to, const T* from) {
  std::memcpy(&to, from, sizeof to);
}

template <typename Vector, typename T>
LOCKSTEP_KERNEL_INLINE void store(T* to, const Vector& from) {
  std::memcpy(to, &from, sizeof from);
}

/// 0, 1, 2, ...
template <typename S>
LOCKSTEP_KERNEL_INLINE void count_lanes(typename S::Ints& lanes) {
  for (int64_t i = 0; i < S::kLanes; ++i) lanes[i] = static_cast<int32_t>(i);
}

/// Folds a vector's upper half onto its lower one by fold(low, high), until one number is left: the order
/// does not depend on the compiler, and nothing goes through memory.
template <int kLanes, typename Vector, typename Fold>
LOCKSTEP_KERNEL_INLINE float folded(const Vector& vector, const Fold& fold) {
  if constexpr (kLanes == 1) {
    return vector[0];
  } else {
    typedef float Half __attribute__((vector_size(kLanes * 2)));
    Half halves[2];
    std::memcpy(halves, &vector, sizeof halves);
    fold(halves[0], halves[1]);
    return folded<kLanes / 2>(halves[0], fold);
  }
}

template <typename S>
LOCKSTEP_KERNEL_INLINE float sum_of(const typename S::Floats& vector) {
  return folded<S::kLanes>(
      vector, [](auto& low, const auto& high) __attribute__((always_inline)) { low += high; });
}

template <typename S>
LOCKSTEP_KERNEL_INLINE float largest_of(const typename S::Floats& vector) {
  return folded<S::kLanes>(
      vector,
      [](auto& low, const auto& high) __attribute__((always_inline)) { low = low > high ? low : high; });
}

/// e^x of each lane, for x of at most 88, to two units in the last place; 0 below -87.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by its series to r^7, whose rest is below 2^-26. Cody and
/// Waite, 1980: ln 2 is taken away in two parts, the first of which has few enough bits for an exact n ln 2.
template <typename S>
LOCKSTEP_KERNEL_INLINE void exponential(typename S::Floats& x) {
  using Floats = typename S::Floats;
  using Ints = typename S::Ints;
  const Ints is_zero = x < -87.0f;
  const Floats bounded = is_zero ? Floats{} - 87.0f : x;
  // Adding 1.5 * 2^23 leaves no bits for a fraction: rounds to the nearest whole number.
  constexpr float kRound = 12582912.0f;
  const Floats n = (bounded * 1.44269504f + kRound) - kRound;
  const Floats r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
  Floats p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n by its exponent's bits; n is in -126 to 127.
  const Ints power = (__builtin_convertvector(n, Ints) + 127) << 23;
  Floats scale;
  std::memcpy(&scale, &power, sizeof scale);
  x = is_zero ? Floats{} : p * scale;
}

}  // namespace lockstep::train::kernels
