#include "lab/sums.h"

#include <fmt/format.h>

#include <cmath>

namespace lab {

namespace {

float unit_of(size_t element) {
  return static_cast<float>(1 + element % 3);
}

/// The counts in a sum, or none if it is not one of this element's contributions.
std::vector<int> decode(float sum, size_t element, int world) {
  const double units = static_cast<double>(sum) / static_cast<double>(unit_of(element));
  if (!(units >= 0) || units != std::floor(units) || units >= std::pow(8.0, world)) return {};
  auto left = static_cast<uint64_t>(units);
  std::vector<int> counts;
  for (int r = 0; r < world; ++r, left /= 8) counts.push_back(static_cast<int>(left % 8));
  return counts;
}

}  // namespace

bool WrongElement::is_untouched() const {
  for (int r = 0; r < static_cast<int>(counts.size()); ++r) {
    if (counts[static_cast<size_t>(r)] != (r == rank ? 1 : 0)) return false;
  }
  return !counts.empty();
}

bool WrongElement::has_repeats() const {
  for (const int count : counts) {
    if (count > 1) return true;
  }
  return false;
}

std::string WrongElement::text() const {
  if (counts.empty())
    return fmt::format("rank {}, element {}: {} is no sum of this element's contributions", rank, element,
                       found);
  if (is_untouched())
    return fmt::format("rank {} of {}, element {}: holds its own contribution alone", rank, world, element);
  std::string text;
  for (int r = 0; r < static_cast<int>(counts.size()); ++r) {
    const int count = counts[static_cast<size_t>(r)];
    if (count == 1) continue;
    text += fmt::format("{}rank {}'s contribution {}", text.empty() ? "" : ", ", r,
                        count == 0 ? "not at all" : fmt::format("{} times", count));
  }
  return fmt::format("rank {} of {}, element {}: holds {}", rank, world, element, text);
}

CountedBuffers::CountedBuffers(int world, size_t count)
    : world_(world), data_(static_cast<size_t>(world), std::vector<float>(count)) {
  float weight = 1;
  for (auto& row : data_) {
    for (size_t i = 0; i < count; ++i) row[i] = unit_of(i) * weight;
    weight *= 8;
  }
}

std::optional<WrongElement> CountedBuffers::first_wrong() const {
  for (int r = 0; r < world_; ++r) {
    if (auto wrong = first_wrong_of(r)) return wrong;
  }
  return std::nullopt;
}

std::optional<WrongElement> CountedBuffers::first_wrong_of(int rank) const {
  double weights = 0;
  for (int r = 0; r < world_; ++r) weights += std::pow(8.0, r);
  const auto& row = data_[static_cast<size_t>(rank)];
  for (size_t i = 0; i < row.size(); ++i) {
    if (static_cast<double>(row[i]) == weights * static_cast<double>(unit_of(i))) continue;
    return WrongElement{rank, i, world_, decode(row[i], i, world_), row[i]};
  }
  return std::nullopt;
}

}  // namespace lab
