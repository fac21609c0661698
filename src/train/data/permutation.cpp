#include "train/data/permutation.h"

#include <limits>
#include <numeric>
#include <utility>

namespace lockstep::train {

namespace {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t mixed = state_ += 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
  }

  /// Any number below `bound`, all equally likely: draws from the incomplete last run of `bound` numbers are
  /// thrown away.
  uint64_t below(uint64_t bound) {
    while (true) {
      const uint64_t draw = next();
      const uint64_t rest = draw % bound;
      if (draw - rest <= std::numeric_limits<uint64_t>::max() - (bound - 1)) return rest;
    }
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<size_t> permutation(size_t count, uint64_t seed) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  SplitMix64 numbers(seed);
  for (size_t left = count; left > 1; --left) std::swap(order[left - 1], order[numbers.below(left)]);
  return order;
}

}  // namespace lockstep::train
