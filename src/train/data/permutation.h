#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::train {

/// 0, 1, ..., count - 1 in an order that depends on count and seed alone, the same on every platform: every
/// order is as likely as any other, as far as 64 bits of seed reach. Fisher and Yates's shuffle with the
/// numbers of splitmix64 (Steele, Lea and Flood, 2014). The order is part of every run's bits: never change
/// it.
std::vector<size_t> permutation(size_t count, uint64_t seed);

}  // namespace lockstep::train
