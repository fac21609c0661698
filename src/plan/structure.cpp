#include "plan/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <optional>
#include <vector>

#include "lockstep/plan/text.h"

namespace lockstep::plan {

namespace {

/// Which round last did something to each slot of the rank under the loop.
class RoundMarks {
 public:
  explicit RoundMarks(int slots) : sent_(static_cast<size_t>(slots), -1), written_(sent_), added_(sent_) {}

  void reset() {
    for (auto* marks : {&sent_, &written_, &added_}) std::fill(marks->begin(), marks->end(), -1);
  }

  /// Marks the step's slots; returns what it collides with in its round, if anything.
  std::optional<std::string> mark(const Step& step) {
    for (int slot = step.slots.first; slot < step.slots.first + step.slots.count; ++slot) {
      const auto at = static_cast<size_t>(slot);
      const bool sent = sent_[at] == step.round, written = written_[at] == step.round,
                 added = added_[at] == step.round;
      if (step.is_send()) {
        if (written) return fmt::format("slot {} is received into in the same round", slot);
        sent_[at] = step.round;
      } else if (step.kind == Kind::kRecv) {
        if (sent) return fmt::format("slot {} is sent in the same round", slot);
        if (written || added) return fmt::format("slot {} is received into twice in one round", slot);
        written_[at] = step.round;
      } else {
        if (written) return fmt::format("slot {} is received into twice in one round", slot);
        added_[at] = step.round;
      }
    }
    return std::nullopt;
  }

 private:
  std::vector<int> sent_, written_, added_;
};

bool in_range(const Slots& slots, int limit) {
  return slots.first >= 0 && slots.count >= 0 && slots.first <= limit && slots.count <= limit - slots.first;
}

std::optional<std::string> check_places(const Plan& plan, const Places& places, int width, int rank) {
  if (places.count < 1 || places.count > plan.world) return fmt::format("{} places", places.count);
  if (places.except >= places.count)
    return fmt::format("exception {} of {} places", places.except, places.count);
  for (const int k : {0, places.count - 1}) {
    const int64_t holder = places.rank + int64_t{k} * places.rank_step;
    const int64_t slot = places.slot + int64_t{k} * places.slot_step;
    if (holder < 0 || holder >= plan.world) return fmt::format("rank {} is not in the world", holder);
    if (slot < 0 || slot + width > plan.slots) return fmt::format("slot {} is not there", slot);
  }
  if (places.except < 0) return std::nullopt;
  if (places.except_slot < 0 || places.except_slot > plan.slots - width) {
    return fmt::format("slot {} is not there", places.except_slot);
  }
  if (places.rank_of(places.except) != rank) return "the place apart is not its own";
  return std::nullopt;
}

std::optional<std::string> check_fields(const Plan& plan, const Step& step, int rank) {
  const bool has_peer = !step.is_local() || step.kind == Kind::kWait;
  if (has_peer && (step.peer < 0 || step.peer >= plan.world)) {
    return fmt::format("peer {} is not in the world of {}", step.peer, plan.world);
  }
  if (has_peer && step.peer == rank) return "the peer is the rank itself";
  if (step.kind == Kind::kPost || step.kind == Kind::kWait) return std::nullopt;
  const bool combines = step.kind == Kind::kCombine;
  const int count = combines ? step.width : step.slots.count;
  if (combines && (step.width < 1 || step.width > plan.slots)) return fmt::format("width {}", step.width);
  if (!in_range({step.chunk, count}, plan.chunks)) {
    return fmt::format("chunks {} to {} of {}", step.chunk, int64_t{step.chunk} + count - 1, plan.chunks);
  }
  if (combines) {
    if (auto problem = check_places(plan, step.sources, step.width, rank)) return problem;
    return check_places(plan, step.destinations, step.width, rank);
  }
  if (!in_range(step.slots, plan.slots)) {
    return fmt::format("slots {} to {} of {}", step.slots.first,
                       int64_t{step.slots.first} + step.slots.count - 1, plan.slots);
  }
  if (step.kind == Kind::kCopy && !in_range({step.from, step.slots.count}, plan.slots)) {
    return fmt::format("copies from slot {}", step.from);
  }
  return std::nullopt;
}

bool reaches_others(const Step& step, int rank) {
  const auto others = [rank](const Places& places) { return places.rank != rank || places.rank_step != 0; };
  return step.kind == Kind::kPost || step.kind == Kind::kWait ||
         (step.kind == Kind::kCombine && (others(step.sources) || others(step.destinations)));
}

}  // namespace

std::string check_header(const Plan& plan) {
  if (plan.world < 1) return fmt::format("a world of {} ranks", plan.world);
  if (plan.root < 0 || plan.root >= plan.world)
    return fmt::format("root {} in a world of {}", plan.root, plan.world);
  if (is_reduction(plan.collective) && plan.order == Order::kNone)
    return fmt::format("{} with order none", name(plan.collective));
  if (plan.order == Order::kNode && plan.ranks_per_node < 1) return "order node without ranks per node";
  if (plan.chunks < 1) return fmt::format("{} chunks", plan.chunks);
  const bool pairs = plan.collective == Collective::kAllToAll;
  const bool by_rank = plan.collective == Collective::kScatter || plan.collective == Collective::kGather ||
                       plan.collective == Collective::kAllGather ||
                       plan.collective == Collective::kReduceScatter;
  if (pairs && plan.chunks != int64_t{plan.world} * plan.world)
    return fmt::format("{} chunks for pairs", plan.chunks);
  if (by_rank && plan.chunks != plan.world)
    return fmt::format("{} chunks for {} ranks", plan.chunks, plan.world);
  const int64_t least = pairs ? int64_t{2} * plan.world : plan.chunks;
  if (plan.slots < least) return fmt::format("{} slots, at least {} are needed", plan.slots, least);
  return "";
}

namespace {

/// The form of the steps of ranks [begin, end).
Structure check_ranks(const Plan& plan, int begin, int end) {
  Structure structure;
  RoundMarks marks(plan.slots);
  for (int rank = begin; rank < end; ++rank) {
    marks.reset();
    int round = 0;
    bool in_messages = false;
    for (Cursor cursor(plan, rank); !cursor.done(); cursor.advance()) {
      const Step& step = cursor.step();
      auto problem = check_fields(plan, step, rank);
      if (step.round < round) problem = fmt::format("round {} follows round {}", step.round, round);
      if (step.round > round) in_messages = false;
      if (in_messages && step.is_local()) problem = "a local step follows messages of its round";
      if (!problem && !step.is_local()) problem = marks.mark(step);
      if (problem) {
        structure.problem =
            fmt::format("rank {} step {} ({}): {}", rank, cursor.index(), to_string(step), *problem);
        return structure;
      }
      round = step.round;
      in_messages = in_messages || !step.is_local();
      structure.one_sided = structure.one_sided || reaches_others(step, rank);
    }
  }
  return structure;
}

}  // namespace

Structure check_structure(const Plan& plan) {
  if (auto problem = check_header(plan); !problem.empty()) return {.problem = std::move(problem)};
  constexpr int kManyRanks = 256;  // fewer are checked faster than a thread starts
  if (plan.world < kManyRanks) return check_ranks(plan, 0, plan.world);
  // Two halves at once: ranks do not depend on each other here, and the lower one's problem is told.
  const int middle = plan.world / 2;
  auto upper = std::async(std::launch::async, [&] { return check_ranks(plan, middle, plan.world); });
  Structure structure = check_ranks(plan, 0, middle);
  const Structure other = upper.get();
  if (structure.problem.empty()) structure.problem = other.problem;
  structure.one_sided = structure.one_sided || other.one_sided;
  return structure;
}

}  // namespace lockstep::plan
