#include "plan/races.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::plan {

Races::Races(int world, int slots)
    : slots_per_rank_(slots), clocks_(static_cast<size_t>(world), Clock(static_cast<size_t>(world), 0)) {
  slots_.reserve(static_cast<size_t>(world) * static_cast<size_t>(slots));
  for (int owner = 0; owner < world; ++owner) {
    clocks_[static_cast<size_t>(owner)][static_cast<size_t>(owner)] = 1;
    // What a rank brings, it wrote itself before the plan began.
    for (int slot = 0; slot < slots; ++slot) slots_.push_back({.store = {owner, 1}});
  }
}

std::string Races::load(int by, int owner, int slot) {
  Slot& place = slot_of(owner, slot);
  if (!known(by, place.store)) {
    return fmt::format("loads slot {} of rank {} while rank {} may still be storing it: no flag orders them",
                       slot, owner, place.store.by);
  }
  place.loads.push_back(now(by));
  return "";
}

std::string Races::store(int by, int owner, int slot) {
  Slot& place = slot_of(owner, slot);
  if (!known(by, place.store)) {
    return fmt::format("stores slot {} of rank {} while rank {} may still be storing it: no flag orders them",
                       slot, owner, place.store.by);
  }
  for (const auto& load : place.loads) {
    if (known(by, load)) continue;
    return fmt::format("stores slot {} of rank {} while rank {} may still be loading it: no flag orders them",
                       slot, owner, load.by);
  }
  place = {.store = now(by)};
  return "";
}

std::string Races::leave(int rank, int slots) {
  for (int slot = 0; slot < std::min(slots, slots_per_rank_); ++slot) {
    const Slot& place = slot_of(rank, slot);
    if (!known(rank, place.store)) {
      return fmt::format("ends while rank {} may still be storing its slot {}: no flag orders them",
                         place.store.by, slot);
    }
    for (const auto& load : place.loads) {
      if (known(rank, load)) continue;
      return fmt::format("ends while rank {} may still be loading its slot {}: no flag orders them", load.by,
                         slot);
    }
  }
  return "";
}

Races::Clock Races::tell(int rank) {
  Clock& clock = clocks_[static_cast<size_t>(rank)];
  Clock told = clock;
  ++clock[static_cast<size_t>(rank)];
  return told;
}

void Races::learn(int rank, const Clock& clock) {
  Clock& own = clocks_[static_cast<size_t>(rank)];
  for (size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], clock[i]);
}

}  // namespace lockstep::plan
