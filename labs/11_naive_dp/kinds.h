#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lab/checker.h"
#include "lab/nets.h"

namespace lab::naive_dp {

/// The models that the check trains.
struct Kind {
  std::string name;
  std::shared_ptr<Net> (*make)(int64_t dim, uint64_t seed);
};
inline const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"the plain net", [](int64_t dim, uint64_t seed) { return make_mlp(dim, 3, seed); }},
      {"the net with a tied weight", make_tied},
      {"the net with a frozen layer", make_frozen},
      // Tied in the same way on all ranks, whose seeds differ.
      {"the net with tied and frozen weights",
       [](int64_t dim, uint64_t seed) { return make_mixed(dim, 6, seed, static_cast<uint64_t>(dim)); }},
      {"the net with two experts", make_experts},
  };
  return all;
}

/// A net of its kind on each rank, from a seed of its own.
struct Replicas {
  const Kind* kind = nullptr;
  int world = 1;
  int64_t dim = 8;
  std::shared_ptr<Net> make(const Checker& checker, int rank) const {
    return kind->make(dim, checker.draw(static_cast<uint64_t>(rank)) % 1'000'000);
  }
};

}  // namespace lab::naive_dp
