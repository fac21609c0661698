#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::plan {

/// Finds loads and stores of different ranks that nothing orders, by vector clocks: clock[r][q] is how far
/// into rank q's doings rank r is known to be after. A rank's own clock steps on whenever it tells others (a
/// flag, a message).
class Races {
 public:
  using Clock = std::vector<int>;

  Races(int world, int slots);

  /// Rank `by` loads from (stores to) a slot of rank `owner`. Returns what it races with, or "".
  std::string load(int by, int owner, int slot);
  std::string store(int by, int owner, int slot);

  /// Rank `rank` is done with the plan: its first `slots` slots are its own again; the others are scratch,
  /// which the engine keeps. Returns who may still use them, or "".
  std::string leave(int rank, int slots);

  /// What rank `rank` tells by raising its flag or sending a message: all it knows.
  Clock tell(int rank);
  /// Rank `rank` has learnt what `clock` knew.
  void learn(int rank, const Clock& clock);

 private:
  struct Access {
    int by;
    int at;  ///< On that rank's own clock.
  };
  struct Slot {
    Access store;
    std::vector<Access> loads = {};  ///< Since the store.
  };

  Slot& slot_of(int owner, int slot) {
    return slots_[static_cast<size_t>(owner) * static_cast<size_t>(slots_per_rank_) +
                  static_cast<size_t>(slot)];
  }
  bool known(int rank, const Access& access) const {
    return access.by == rank ||
           clocks_[static_cast<size_t>(rank)][static_cast<size_t>(access.by)] >= access.at;
  }
  Access now(int rank) const { return {rank, clocks_[static_cast<size_t>(rank)][static_cast<size_t>(rank)]}; }

  int slots_per_rank_;
  std::vector<Clock> clocks_;
  std::vector<Slot> slots_;
};

}  // namespace lockstep::plan
