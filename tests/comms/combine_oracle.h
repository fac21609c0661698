#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "lockstep/comms/types.h"

/// `combine` as one would write it first: one element at a time, half types by powers of two.
namespace lockstep::comms::oracle {

/// A half type by its parameters: `mantissa_bits`, and the exponent of the smallest normal number.
struct HalfFormat {
  int mantissa_bits;
  int least_exponent;

  float decode(uint16_t bits) const {
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const int exponent = (bits & 0x7fff) >> mantissa_bits;
    const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
    if (exponent == (0x7fff >> mantissa_bits)) {
      // The payload stays. Only bfloat16 can be signalling in float32: it is merely longer there.
      const uint32_t quiet = mantissa != 0 && mantissa_bits == 10 ? 0x400000 : 0;
      const auto payload = static_cast<uint32_t>(mantissa) << (23 - mantissa_bits);
      return std::bit_cast<float>((bits & 0x8000U) << 16 | 0x7f800000 | payload | quiet);
    }
    const int digits = exponent == 0 ? mantissa : mantissa | (1 << mantissa_bits);
    return sign *
           static_cast<float>(std::ldexp(digits, std::max(exponent, 1) - 1 + least_exponent - mantissa_bits));
  }

  /// The nearest, found in float64, where scaling by powers of two and rounding to integers are exact.
  uint16_t encode(float value) const {
    const int sign = std::signbit(value) ? 0x8000 : 0;
    const int infinity = (0x7fff >> mantissa_bits) << mantissa_bits;
    const int payload = static_cast<int>((std::bit_cast<uint32_t>(value) & 0x7fffff) >> (23 - mantissa_bits));
    if (std::isnan(value))
      return static_cast<uint16_t>(sign | infinity | (1 << (mantissa_bits - 1)) | payload);
    const double magnitude = std::fabs(static_cast<double>(value));
    if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | infinity);
    const int exponent = magnitude == 0 ? least_exponent : std::max(std::ilogb(magnitude), least_exponent);
    const double digits = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));  // ties to even
    const int bits = static_cast<int>(digits) + ((exponent - least_exponent) << mantissa_bits);
    return static_cast<uint16_t>(sign | std::min(bits, infinity));
  }
};

constexpr HalfFormat kFloat16{10, -14};
constexpr HalfFormat kBFloat16{7, -126};

/// A NaN as arithmetic returns it.
template <typename T>
T quiet(T nan) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(std::bit_cast<Bits>(nan) | Bits{1} << (std::numeric_limits<T>::digits - 2));
}

/// a op b, to the bit: the first NaN survives, and of two equal numbers in min and max the first.
template <typename T>
T fold(ReduceOp op, T a, T b) {
  const bool adds = op == ReduceOp::kSum || op == ReduceOp::kMean;
  if (std::isnan(a) || std::isnan(b)) {
    const T nan = std::isnan(a) ? a : b;
    return adds || op == ReduceOp::kProduct ? quiet(nan) : nan;
  }
  if (op == ReduceOp::kMin) return b < a ? b : a;
  if (op == ReduceOp::kMax) return b > a ? b : a;
  return adds ? a + b : a * b;
}

template <typename T>
T reduce_floats(ReduceOp op, const std::vector<T>& values, int divide_by) {
  T result = values[0];
  for (size_t i = 1; i < values.size(); ++i) result = fold(op, result, values[i]);
  return op == ReduceOp::kMean && divide_by != 1 ? result / static_cast<T>(divide_by) : result;
}

template <typename T>
T reduce_integers(ReduceOp op, const std::vector<T>& values) {
  T result = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    const auto x = static_cast<uint64_t>(values[i]);
    const auto so_far = static_cast<uint64_t>(result);
    if (op == ReduceOp::kSum) result = static_cast<T>(so_far + x);
    if (op == ReduceOp::kProduct) result = static_cast<T>(so_far * x);
    if (op == ReduceOp::kMin) result = std::min(result, values[i]);
    if (op == ReduceOp::kMax) result = std::max(result, values[i]);
  }
  return result;
}

template <typename T>
std::vector<T> load(const std::vector<const std::byte*>& sources, size_t at) {
  std::vector<T> values(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) std::memcpy(&values[i], sources[i] + at * sizeof(T), sizeof(T));
  return values;
}

inline uint16_t reduce_halves(const HalfFormat& format, ReduceOp op, const std::vector<uint16_t>& halves,
                              int divide_by) {
  if (halves.size() == 1 && (op != ReduceOp::kMean || divide_by == 1)) return halves[0];  // a copy
  std::vector<float> values;
  for (const uint16_t half : halves) values.push_back(format.decode(half));
  return format.encode(reduce_floats(op, values, divide_by));
}

/// One element, as bytes.
inline void combine_element(DataType type, ReduceOp op, const std::vector<const std::byte*>& sources,
                            size_t at, int divide_by, std::byte* result) {
  const auto put = [&](auto value) { std::memcpy(result, &value, sizeof value); };
  switch (type) {
    case DataType::kFloat32:
      return put(reduce_floats(op, load<float>(sources, at), divide_by));
    case DataType::kFloat64:
      return put(reduce_floats(op, load<double>(sources, at), divide_by));
    case DataType::kFloat16:
      return put(reduce_halves(kFloat16, op, load<uint16_t>(sources, at), divide_by));
    case DataType::kBFloat16:
      return put(reduce_halves(kBFloat16, op, load<uint16_t>(sources, at), divide_by));
    case DataType::kInt32:
      return put(reduce_integers(op, load<int32_t>(sources, at)));
    case DataType::kInt64:
      return put(reduce_integers(op, load<int64_t>(sources, at)));
    case DataType::kUInt8:
      return put(reduce_integers(op, load<uint8_t>(sources, at)));
    case DataType::kBool: {
      const bool both = op == ReduceOp::kProduct || op == ReduceOp::kMin;
      uint8_t bit = both ? 1 : 0;
      for (const uint8_t x : load<uint8_t>(sources, at)) bit = both ? bit & x : bit | x;
      return put(bit);
    }
  }
}

inline std::vector<std::byte> combine(DataType type, ReduceOp op,
                                      const std::vector<const std::byte*>& sources, size_t count,
                                      int divide_by) {
  std::vector<std::byte> result(count * size_of(type));
  for (size_t i = 0; i < count; ++i) {
    combine_element(type, op, sources, i, divide_by, result.data() + i * size_of(type));
  }
  return result;
}

constexpr unsigned kSpecials = 10;
/// The bits of 0, 1, infinity, a quiet and a signalling NaN whose payloads come from `noise`, all of both
/// signs.
inline uint64_t special(DataType type, unsigned which, uint64_t noise) {
  const int width = static_cast<int>(8 * size_of(type));
  const int mantissa_bits = type == DataType::kFloat64   ? 52
                            : type == DataType::kFloat32 ? 23
                            : type == DataType::kFloat16 ? 10
                                                         : 7;
  const uint64_t sign = uint64_t{which % 2} << (width - 1);
  const uint64_t infinity = (uint64_t{1} << (width - 1)) - (uint64_t{1} << mantissa_bits);
  const uint64_t quiet = uint64_t{1} << (mantissa_bits - 1);
  const uint64_t magnitudes[] = {0, infinity >> 1 & infinity, infinity, infinity | quiet | noise % quiet,
                                 infinity | (1 + noise % (quiet - 1))};
  return sign | magnitudes[which / 2];
}

/// Random bits, hence of every magnitude, with `special` ones among them; near 1 for every other
/// float32 and float64, so that sums round. Bool is 0 or 1.
inline void fill(DataType type, std::byte* data, size_t count, std::mt19937& random) {
  const size_t bytes = count * size_of(type);
  for (size_t i = 0; i < bytes; i += 4) {
    const auto bits = static_cast<uint32_t>(random());
    std::memcpy(data + i, &bits, std::min<size_t>(4, bytes - i));
  }
  for (size_t i = 0; i < count; ++i) {
    const auto put = [&](auto value) { std::memcpy(data + i * sizeof value, &value, sizeof value); };
    const double near_one =
        1.0 + static_cast<double>(random()) * 0x1p-32 + static_cast<double>(random()) * 0x1p-64;
    const auto choice = static_cast<unsigned>(random() % 40);
    if (type == DataType::kBool) put(static_cast<uint8_t>(random() & 1));
    if (type == DataType::kFloat32 && choice % 2 == 0) put(static_cast<float>(near_one));
    if (type == DataType::kFloat64 && choice % 2 == 0) put(near_one);
    if (choice >= kSpecials || !is_floating_point(type)) continue;
    const uint64_t bits = special(type, choice, random());
    std::memcpy(data + i * size_of(type), &bits, size_of(type));
  }
}

}  // namespace lockstep::comms::oracle
