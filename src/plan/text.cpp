#include "lockstep/plan/text.h"

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep::plan {

namespace {

std::string slots_text(const Slots& slots) {
  if (slots.count == 1) return fmt::format("slot {}", slots.first);
  return fmt::format("slots {}..{}", slots.first, int64_t{slots.first} + slots.count - 1);
}

std::string places_text(const Places& places) {
  std::string text = fmt::format("{}x {}:{}+{}:{}", places.count, places.rank, places.slot, places.rank_step,
                                 places.slot_step);
  if (places.except >= 0) text += fmt::format(" except {}={}", places.except, places.except_slot);
  return text;
}

std::string chunk_text(int chunk, int slot) {
  return chunk == slot ? "" : fmt::format(" chunk {}", chunk);
}

}  // namespace

std::string to_string(const Step& step) {
  switch (step.kind) {
    case Kind::kPost:
      return "post";
    case Kind::kWait:
      return fmt::format("wait {} flag {}", step.peer, step.flag);
    case Kind::kCopy:
      return fmt::format("copy {} from {}{}", slots_text(step.slots), step.from,
                         chunk_text(step.chunk, step.slots.first));
    case Kind::kCombine:
      return fmt::format("combine {} to {} width {} chunk {}", places_text(step.sources),
                         places_text(step.destinations), step.width, step.chunk);
    case Kind::kSend:
    case Kind::kRecv:
    case Kind::kRecvReduce:
      break;
  }
  return fmt::format("{} {} {}{}", name(step.kind), step.peer, slots_text(step.slots),
                     chunk_text(step.chunk, step.slots.first));
}

void check_printable(const Plan& plan) {
  int64_t steps = 0;
  for (int rank = 0; rank < plan.world; ++rank) steps += plan.size(rank);
  if (steps > kMostPrintedSteps) {
    throw UsageError(fmt::format("{} {} for {} ranks has {} steps, more than {}; hint: print a smaller world",
                                 name(plan.collective), plan.algorithm, plan.world, steps,
                                 kMostPrintedSteps));
  }
}

std::string to_string(const Plan& plan) {
  check_printable(plan);
  std::string text = fmt::format("plan {} {} world {} root {} chunks {} slots {} {} order {} sends {}",
                                 name(plan.collective), plan.algorithm, plan.world, plan.root, plan.chunks,
                                 plan.slots, name(plan.division), name(plan.order), name(plan.sends));
  if (plan.ranks_per_node > 0) text += fmt::format(" ranks_per_node {}", plan.ranks_per_node);
  text += "\n";
  for (int rank = 0; rank < plan.world; ++rank) {
    text += fmt::format("rank {}\n", rank);
    for (Cursor cursor(plan, rank); !cursor.done(); cursor.advance()) {
      text += fmt::format("  {} {}\n", cursor.step().round, to_string(cursor.step()));
    }
  }
  return text;
}

}  // namespace lockstep::plan
