#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/plan/pipeline.h"
#include "lockstep/plan/plan.h"

namespace lockstep::plan {

/// The largest number that a plan read from outside may have anywhere: two of them can be added.
constexpr int kLargestNumber = 1'000'000'000;

template <typename Enumeration>
constexpr Enumeration kLastOf = Enumeration{};
template <>
inline constexpr Collective kLastOf<Collective> = Collective::kBarrier;
template <>
inline constexpr Order kLastOf<Order> = Order::kNode;
template <>
inline constexpr Sends kLastOf<Sends> = Sends::kBuffered;
template <>
inline constexpr Division kLastOf<Division> = Division::kEach;
template <>
inline constexpr Kind kLastOf<Kind> = Kind::kRecvReduce;
template <>
inline constexpr ActionKind kLastOf<ActionKind> = ActionKind::kRecvBackward;

/// The value of that name, exactly.
template <typename Enumeration>
std::optional<Enumeration> named(std::string_view word) {
  for (int i = 0; i <= static_cast<int>(kLastOf<Enumeration>); ++i) {
    if (name(static_cast<Enumeration>(i)) == word) return static_cast<Enumeration>(i);
  }
  return std::nullopt;
}

/// All names, for a hint.
template <typename Enumeration>
std::string names_of() {
  std::string all;
  for (int i = 0; i <= static_cast<int>(kLastOf<Enumeration>); ++i) {
    all += fmt::format("{}{}", all.empty() ? "" : ", ", name(static_cast<Enumeration>(i)));
  }
  return all;
}

}  // namespace lockstep::plan
