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

/// In halves, so that the order does not depend on the compiler.
template <typename S>
LOCKSTEP_KERNEL_INLINE float sum_of(const typename S::Floats& vector) {
  float lanes[S::kLanes];
  store(lanes, vector);
  for (int64_t half = S::kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

template <typename S>
LOCKSTEP_KERNEL_INLINE float largest_of(const typename S::Floats& vector) {
  float lanes[S::kLanes];
  store(lanes, vector);
  for (int64_t half = S::kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  }
  return lanes[0];
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
