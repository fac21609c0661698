#pragma once

#include <cstdint>

namespace lockstep::parallel {

/// What a random stream is for. A value is part of every run's bits: never change one, only add.
enum class Stream : uint64_t {
  kWeights = 1,
  kTask = 2,
  kBatches = 3,
  kValidation = 4,
  kOrder = 5,
  kDropout = 6
};

/// The seed of one random stream, a function of its three arguments alone: what one stream draws never shifts
/// another. The finaliser is splitmix64's (Steele, Lea and Flood, 2014), a bijection whose output bits each
/// depend on all input bits; torch's CPU generator keeps only the low 32.
constexpr uint64_t derive_seed(uint64_t seed, Stream stream, uint64_t index = 0) {
  uint64_t mixed = seed;
  for (const uint64_t word : {static_cast<uint64_t>(stream), index}) {
    mixed += 0x9e3779b97f4a7c15U * (word + 1);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    mixed ^= mixed >> 31;
  }
  return mixed;
}

}  // namespace lockstep::parallel
