#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lab {

/// Floats with a margin on both sides that nobody may write to: what checks hand to a learner's code. A
/// struct of data, so that a child process can hand it back.
struct GuardedFloats {
  std::vector<float> cells;  ///< Margin, floats, margin.

  static GuardedFloats make(size_t count, float value = 0);
  std::span<float> floats() { return std::span(cells).subspan(kMargin, cells.size() - 2 * kMargin); }
  std::span<const float> floats() const {
    return std::span(cells).subspan(kMargin, cells.size() - 2 * kMargin);
  }
  /// Where something was written outside: `2 floats beyond its end`; "" if nothing was.
  std::string damage() const;

  static constexpr size_t kMargin = 16;
};

/// An element of a reduction that is not what it should be.
struct WrongElement {
  int rank = 0;
  size_t element = 0;
  int world = 0;
  std::vector<int> counts;  ///< How often each rank's contribution is in it; empty if that cannot be seen.
  float found = 0;

  /// As it was before: this rank's own contribution and nothing else.
  bool is_untouched() const;
  bool has_repeats() const;
  /// `rank 2, element 5: holds rank 0's contribution 2 times, rank 3's not at all`
  std::string text() const;
};

/// Buffers whose sum shows which contributions are in it. Up to 8 ranks also how often: rank r's element i is
/// (1 + i % 3) * 8^((r + i) % world). For more ranks they are small integers that differ by rank and element.
/// Floats add both exactly. A struct of data, so that a child process can hand it back.
struct CountedBuffers {
  std::vector<GuardedFloats> rows;  ///< By rank.

  static CountedBuffers make(int world, size_t count);
  std::span<float> of(int rank) { return rows[static_cast<size_t>(rank)].floats(); }
  int world() const { return static_cast<int>(rows.size()); }
  /// The first element, on any rank, that does not hold each contribution once.
  std::optional<WrongElement> first_wrong() const;
  /// The same for one rank alone.
  std::optional<WrongElement> first_wrong_of(int rank) const;
  /// What this rank holds in every element in place of the sum: `mean`, `maximum`, ...; "" if it is none of
  /// these, or if that cannot be seen (one rank, or fewer than three elements).
  std::string other_operation(int rank) const;
  /// Where a rank wrote outside of its buffer: `rank 2 wrote 1 float beyond its end`; "" if none did.
  std::string damage() const;
};

class Checker;
/// A float of either sign, with a fraction.
float drawn_value(const Checker& checker, uint64_t salt);
/// Fails as `inexact sum`, or as `signs lost` where it is far off, if `found` is not the sum of the rows to
/// within what floats round.
void expect_exact(Checker& checker, const std::vector<std::vector<float>>& rows,
                  const std::vector<float>& found);

}  // namespace lab
