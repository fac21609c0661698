#pragma once

#include <bit>
#include <cstdint>

/// Exact conversions between float32 and the half types, free of branches so that loops over them vectorise.
/// They give the bits of the CPU's own instructions, also where denormal numbers are flushed to zero: a
/// half's denormal numbers are normal in float32, and never pass through a denormal float32 here.
namespace lockstep::comms {

/// IEEE half: 1 sign, 5 exponent, 10 mantissa bits.
struct Float16 {
  uint16_t bits;
};

/// The upper half of a float32.
struct BFloat16 {
  uint16_t bits;
};

/// A choice by masks: GCC turns ?: between floating-point results into a branch, and then does not vectorise.
[[gnu::always_inline]] inline uint32_t choose(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

/// Exact; NaN stays NaN and becomes quiet.
[[gnu::always_inline]] inline float widen(Float16 half) {
  const uint32_t sign = (half.bits & 0x8000u) << 16;
  const uint32_t magnitude = half.bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);  // the exponent's bias grows from 15 to 127
  const auto denormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t special = (magnitude << 13) | 0x7f800000u | choose(magnitude > 0x7c00u, 0x400000u, 0u);
  const uint32_t finite = choose(magnitude < 0x400u, denormal, normal);
  return std::bit_cast<float>(sign | choose(magnitude < 0x7c00u, finite, special));
}

/// Exact; NaN stays the same NaN.
[[gnu::always_inline]] inline float widen(BFloat16 half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half.bits) << 16);
}

/// Rounds to nearest, ties to even; too large becomes infinite; NaN stays NaN and becomes quiet.
[[gnu::always_inline]] inline void narrow(float wide, Float16& half) {
  const auto bits = std::bit_cast<uint32_t>(wide);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Rounding carries from the mantissa into the exponent, at the top into infinity.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // A half's denormal numbers are multiples of 2^-24, which is the last bit of 0.5: the addition rounds.
  const uint32_t denormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const uint32_t special = choose(magnitude > 0x7f800000u, nan, 0x7c00u);
  const uint32_t finite = choose(magnitude < 0x38800000u, denormal, normal);                   // 2^-14
  half.bits = static_cast<uint16_t>(sign | choose(magnitude < 0x47800000u, finite, special));  // 2^16
}

/// Rounds to nearest, ties to even; NaN stays NaN and becomes quiet.
[[gnu::always_inline]] inline void narrow(float wide, BFloat16& half) {
  const auto bits = std::bit_cast<uint32_t>(wide);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  half.bits = static_cast<uint16_t>(choose(is_nan, bits | 0x400000u, rounded) >> 16);
}

}  // namespace lockstep::comms
