#include "lab/sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>

#include "lab/checker.h"

namespace lab {

namespace {

constexpr int kCountedWorld = 8;

// Fills margins. Not a NaN, which stays what it is when something is added to it, and not whole.
const float kCanary = std::bit_cast<float>(0x3f9dcafe);

bool is_canary(float value) {
  return std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(kCanary);
}

float unit_of(size_t element) {
  return static_cast<float>(1 + element % 3);
}

/// Which octal digit of an element counts a rank. It depends on the element, so that the largest contribution
/// is not always the same rank's: a maximum differs from what one rank contributes.
int digit_of(int world, int rank, size_t element) {
  return static_cast<int>((static_cast<size_t>(rank) + element) % static_cast<size_t>(world));
}

/// What a rank contributes to an element.
float contribution(int world, int rank, size_t element) {
  if (world <= kCountedWorld) return unit_of(element) * std::ldexp(1.0F, 3 * digit_of(world, rank, element));
  const uint64_t mixed = (static_cast<uint64_t>(rank) << 32 | element) * 0x9e3779b97f4a7c15U;
  return static_cast<float>(1 + (mixed >> 48));  // 2^16 at most: 2^8 ranks add exactly
}

/// The counts in a sum, or none if it is not one of this element's contributions.
std::vector<int> decode(float sum, int rank, size_t element, int world) {
  std::vector<int> counts(static_cast<size_t>(world));
  if (world > kCountedWorld) {  // only what is alone can be seen
    counts[static_cast<size_t>(rank)] = 1;
    return sum == contribution(world, rank, element) ? counts : std::vector<int>{};
  }
  const double units = static_cast<double>(sum) / static_cast<double>(unit_of(element));
  if (!(units >= 0) || units != std::floor(units) || units >= std::pow(8.0, world)) return {};
  const auto digits = static_cast<uint64_t>(units);
  for (int r = 0; r < world; ++r)
    counts[static_cast<size_t>(r)] = static_cast<int>(digits >> 3 * digit_of(world, r, element) & 7);
  return counts;
}

/// What a sum may be mistaken for, of the contributions to one element.
struct Operation {
  const char* name;
  double (*apply)(const std::vector<double>& contributions);
};
constexpr Operation kOperations[] = {
    {"mean",
     [](const auto& all) {
       return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
     }},
    {"maximum", [](const auto& all) { return *std::ranges::max_element(all); }},
    {"minimum", [](const auto& all) { return *std::ranges::min_element(all); }},
    {"product",
     [](const auto& all) { return std::accumulate(all.begin(), all.end(), 1.0, std::multiplies()); }},
    {"sum of squares",
     [](const auto& all) { return std::inner_product(all.begin(), all.end(), all.begin(), 0.0); }},
};

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
    return fmt::format("rank {} of {}, element {}: {} is not the sum of all contributions", rank, world,
                       element, found);
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

GuardedFloats GuardedFloats::make(size_t count, float value) {
  GuardedFloats made{std::vector<float>(count + 2 * kMargin, kCanary)};
  std::ranges::fill(made.floats(), value);
  return made;
}

std::string GuardedFloats::damage() const {
  const auto damaged = [&](size_t from) {
    return kMargin - static_cast<size_t>(std::count_if(
                         cells.begin() + static_cast<std::ptrdiff_t>(from),
                         cells.begin() + static_cast<std::ptrdiff_t>(from + kMargin), is_canary));
  };
  const auto text = [](size_t count, const char* where) {
    return fmt::format("{} {} {}", count, count == 1 ? "float" : "floats", where);
  };
  if (const size_t count = damaged(cells.size() - kMargin); count > 0) return text(count, "beyond its end");
  if (const size_t count = damaged(0); count > 0) return text(count, "before its beginning");
  return "";
}

CountedBuffers CountedBuffers::make(int world, size_t count) {
  CountedBuffers made;
  for (int r = 0; r < world; ++r) {
    auto row = GuardedFloats::make(count);
    for (size_t i = 0; i < count; ++i) row.floats()[i] = contribution(world, r, i);
    made.rows.push_back(std::move(row));
  }
  return made;
}

std::optional<WrongElement> CountedBuffers::first_wrong() const {
  for (int r = 0; r < world(); ++r) {
    if (auto wrong = first_wrong_of(r)) return wrong;
  }
  return std::nullopt;
}

std::optional<WrongElement> CountedBuffers::first_wrong_of(int rank) const {
  const auto row = rows[static_cast<size_t>(rank)].floats();
  for (size_t i = 0; i < row.size(); ++i) {
    double expected = 0;
    for (int r = 0; r < world(); ++r) expected += static_cast<double>(contribution(world(), r, i));
    if (static_cast<double>(row[i]) == expected) continue;
    return WrongElement{rank, i, world(), decode(row[i], rank, i, world()), row[i]};
  }
  return std::nullopt;
}

std::string CountedBuffers::other_operation(int rank) const {
  const auto row = rows[static_cast<size_t>(rank)].floats();
  if (world() < 2 || row.size() < 3) return "";
  const auto gives_row = [&](const Operation& operation) {
    for (size_t i = 0; i < row.size(); ++i) {
      std::vector<double> all;
      for (int r = 0; r < world(); ++r) all.push_back(static_cast<double>(contribution(world(), r, i)));
      const double expected = operation.apply(all);
      if (!(std::abs(static_cast<double>(row[i]) - expected) <= 1e-5 * expected)) return false;
    }
    return true;
  };
  const auto* const found = std::ranges::find_if(kOperations, gives_row);
  return found == std::end(kOperations) ? "" : found->name;
}

std::string CountedBuffers::damage() const {
  for (size_t r = 0; r < rows.size(); ++r) {
    if (const auto text = rows[r].damage(); !text.empty()) return fmt::format("rank {} wrote {}", r, text);
  }
  return "";
}

float drawn_value(const Checker& checker, uint64_t salt) {
  return static_cast<float>(checker.draw_between(salt, -8'000'000, 8'000'000)) / 1e3F;
}

void expect_exact(Checker& checker, const std::vector<std::vector<float>>& rows,
                  const std::vector<float>& found) {
  double worst = 0;  // error, as a part of the contributions
  std::string what;
  for (size_t i = 0; i < found.size(); ++i) {
    double expected = 0, size = 0;
    for (const auto& row : rows) {
      expected += static_cast<double>(row[i]);
      size += std::abs(static_cast<double>(row[i]));
    }
    const double error = std::abs(static_cast<double>(found[i]) - expected) / size;
    if (error <= worst) continue;
    worst = std::isnan(error) ? 1 : error;
    what = fmt::format("{} ranks, element {}: the sum is {:.9g}, expected {:.9g}", rows.size(), i, found[i],
                       expected);
  }
  checker.expect(worst < 0.02, "signs lost", what,
                 "Sums of positive integers are right, this one of both signs is far off. Does an absolute "
                 "value or a comparison leave negative numbers out?");
  checker.expect(worst <= 1e-6 * static_cast<double>(rows.size()), "inexact sum", what,
                 "More is lost than floats round. Does a value pass through an int or a half?");
}

}  // namespace lab
