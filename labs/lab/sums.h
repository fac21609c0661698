#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lab {

/// An element of a reduction that is not what it should be.
struct WrongElement {
  int rank = 0;
  size_t element = 0;
  int world = 0;
  std::vector<int>
      counts;  ///< How often each rank's contribution is in it; empty if it is no sum of contributions.
  float found = 0;

  /// As it was before: this rank's own contribution and nothing else.
  bool is_untouched() const;
  bool has_repeats() const;
  /// `rank 2, element 5: holds rank 0's contribution 2 times, rank 3's not at all`
  std::string text() const;
};

/// Buffers whose sum tells which contributions are in it, and how often: rank r's element i is (1 + i % 3) *
/// 8^r, which floats add exactly for up to 8 ranks.
class CountedBuffers {
 public:
  CountedBuffers(int world, size_t count);
  std::span<float> of(int rank) { return data_[static_cast<size_t>(rank)]; }
  /// The first element, on any rank, that does not hold each contribution once.
  std::optional<WrongElement> first_wrong() const;
  /// The same for one rank alone.
  std::optional<WrongElement> first_wrong_of(int rank) const;

 private:
  int world_;
  std::vector<std::vector<float>> data_;
};

}  // namespace lab
