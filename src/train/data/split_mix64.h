#pragma once

#include <cstdint>
#include <limits>

namespace lockstep::train {

/// The numbers of splitmix64 (Steele, Lea and Flood, 2014): a function of the seed alone, the same on every
/// platform. They are part of every run's bits: never change them.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t mixed = state_ += 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
  }

  /// At least 0, less than 1.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

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

}  // namespace lockstep::train
