#include "plan/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "plan/reference_data.h"
#include "plan/reference_machine.h"

namespace lockstep::plan::reference {

namespace {

bool fits(const Slots& slots, int64_t limit) {
  return slots.first >= 0 && slots.count >= 0 && int64_t{slots.first} + slots.count <= limit;
}

bool fits(const Plan& plan, const Places& places, int width) {
  if (places.count < 1) return false;
  for (int k = 0; k < places.count; ++k) {
    if (places.rank_of(k) < 0 || places.rank_of(k) >= plan.world) return false;
    if (!fits(Slots{places.slot_of(k), width}, plan.slots)) return false;
  }
  return true;
}

bool fits(const Plan& plan, const Step& step, int rank) {
  const bool has_peer = !step.is_local() || step.kind == Kind::kWait;
  if (has_peer && (step.peer < 0 || step.peer >= plan.world || step.peer == rank)) return false;
  if (step.kind == Kind::kPost || step.kind == Kind::kWait) return true;
  if (step.kind == Kind::kCombine) {
    return step.width >= 1 && fits(Slots{step.chunk, step.width}, plan.chunks) &&
           fits(plan, step.sources, step.width) && fits(plan, step.destinations, step.width);
  }
  if (step.kind == Kind::kCopy && !fits(Slots{step.from, step.slots.count}, plan.slots)) return false;
  return fits(step.slots, plan.slots) && fits(Slots{step.chunk, step.slots.count}, plan.chunks);
}

/// Whether each rank's steps can be run at all.
bool is_well_formed(const Plan& plan) {
  for (int rank = 0; rank < plan.world; ++rank) {
    int round = 0;
    bool in_messages = false;
    for (const Step& step : plan.steps(rank)) {
      if (step.round < round || !fits(plan, step, rank)) return false;
      if (step.round > round) in_messages = false;
      if (in_messages && step.is_local()) return false;
      in_messages = in_messages || !step.is_local();
      round = step.round;
    }
  }
  return true;
}

template <typename Value>
std::string run(const Plan& plan, Count count, uint64_t seed) {
  if (!is_well_formed(plan)) return "malformed";
  const Data<Value> data(plan, count);
  Machine<Value> machine(plan, data, seed);
  if (const auto fault = machine.run(); !fault.empty()) return fault;
  return data.compare(machine.results());
}

}  // namespace

std::string fault_of(const Plan& plan, Count count, uint64_t seed) {
  return run<uint64_t>(plan, count, seed);
}

std::string order_fault_of(const Plan& plan, Count count, uint64_t seed) {
  return run<Term>(plan, count, seed);
}

std::string any_fault_of(const Plan& plan, int runs, uint64_t seed) {
  const bool barrier = plan.collective == Collective::kBarrier;
  std::vector<Count> counts = {Count{2} * plan.chunks + 1, 1, Count{plan.chunks} - 1};
  if (barrier) counts = {1};
  const int interleavings = barrier ? std::max(runs, 3 * plan.world) : runs;  // everybody comes last once
  for (int i = 0; i < interleavings; ++i) {
    for (const Count count : counts) {
      const uint64_t which = seed + static_cast<uint64_t>(i);
      const auto fault = fault_of(plan, count, which);
      if (!fault.empty()) return fmt::format("{} (count {}, interleaving {})", fault, count, which);
    }
  }
  return "";
}

}  // namespace lockstep::plan::reference
