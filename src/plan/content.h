#pragma once

#include <cstdint>

namespace lockstep::plan {

/// What a slot holds, symbolically: the sum of some ranks' contributions to one chunk. In worlds to 64 `low`
/// is the exact set of contributors, a bit each; above, `low` and `high` are the sum of a random 128-bit
/// number for each.
struct Content {
  uint64_t low = 0;
  uint64_t high = 0;
  uint64_t expression = 0;  ///< A hash of how the sum was made: which operands, on which side.
  int32_t chunk = -1;       ///< -1: nothing that may be read.
  int32_t count = 0;        ///< Contributions.
};

/// Spreads a number over all 64 bits (the finaliser of splitmix64).
constexpr uint64_t scramble(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

/// What rank `rank` brings to a chunk at first.
inline Content contribution(int rank, int chunk, bool exact) {
  const auto number = static_cast<uint64_t>(rank);
  return {.low = exact ? uint64_t{1} << number : scramble(2 * number + 1),
          .high = exact ? 0 : scramble(scramble(2 * number + 2)),
          .expression = scramble(number + 0x51ed270b),
          .chunk = chunk,
          .count = 1};
}

/// The expression a + b. Not the same as b + a: of two NaNs, or of 0 and -0 in min and max, the left one
/// wins.
constexpr uint64_t sum_of(uint64_t a, uint64_t b) {
  return scramble(a * 3 + scramble(b));
}

/// Whether both have a contribution of the same rank. Above 64 ranks that shows in the end, by count and sum;
/// only counts beyond the world show at once, and none may come about: such sums would wrap around.
inline bool overlap(const Content& a, const Content& b, bool exact, int world) {
  return exact ? (a.low & b.low) != 0 : a.count > world - b.count;
}

/// a + b, contributions and all.
inline Content added(const Content& a, const Content& b) {
  Content sum = a;
  sum.low += b.low;
  sum.high += b.high + (sum.low < a.low ? 1 : 0);
  sum.count += b.count;
  sum.expression = sum_of(a.expression, b.expression);
  return sum;
}

}  // namespace lockstep::plan
