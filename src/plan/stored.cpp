#include "lockstep/plan/stored.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace lockstep::plan {

namespace {

/// Slots that a step touches, and what it tells about other ranks: proving flags and barriers takes a word
/// per rank.
int64_t work_of(const Step& step, int world, bool tells) {
  switch (step.kind) {
    case Kind::kPost:
    case Kind::kWait:
      return world;
    case Kind::kCombine:
      return int64_t{step.width} * (int64_t{step.sources.count} + step.destinations.count);
    case Kind::kCopy:
      return step.slots.count;
    case Kind::kSend:
    case Kind::kRecv:
    case Kind::kRecvReduce:
      break;
  }
  return int64_t{step.slots.count} + (tells ? world : 0);
}

}  // namespace

Plan stored(Plan header, std::vector<std::vector<Step>> steps) {
  const auto all = std::make_shared<const std::vector<std::vector<Step>>>(std::move(steps));
  Plan plan = std::move(header);
  plan.phases = {{.size = [all](int rank) -> int64_t {
                    const auto at = static_cast<size_t>(rank);
                    return at < all->size() ? static_cast<int64_t>((*all)[at].size()) : 0;
                  },
                  .step =
                      [all](int rank, int64_t index) {
                        return (*all)[static_cast<size_t>(rank)][static_cast<size_t>(index)];
                      }}};
  return plan;
}

std::string too_large(const Plan& header, const std::vector<std::vector<Step>>& steps) {
  int64_t flags = 0;
  bool tells = header.collective == Collective::kBarrier;
  for (const auto& of_rank : steps) {
    for (const auto& step : of_rank) {
      flags += step.kind == Kind::kPost ? 1 : 0;
      tells = tells || step.kind == Kind::kPost || step.kind == Kind::kWait || step.kind == Kind::kCombine;
    }
  }
  const int64_t slots = header.world * (header.slots + flags + (tells ? header.world : 0));
  if (slots > kMostStoredSlots) {
    return fmt::format(
        "{} ranks with {} slots each and {} flags are too many to prove; hint: at most {} slots in all",
        header.world, header.slots, flags, kMostStoredSlots);
  }
  int64_t work = 0;
  for (const auto& of_rank : steps) {
    for (const auto& step : of_rank) {
      work += work_of(step, header.world, tells);
      if (work > kMostStoredWork) return fmt::format("the steps touch more than {} slots", kMostStoredWork);
    }
  }
  return "";
}

}  // namespace lockstep::plan
