#include "train/data/permutation.h"

#include <numeric>
#include <utility>

#include "train/data/split_mix64.h"

namespace lockstep::train {

std::vector<size_t> permutation(size_t count, uint64_t seed) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  SplitMix64 numbers(seed);
  for (size_t left = count; left > 1; --left) std::swap(order[left - 1], order[numbers.below(left)]);
  return order;
}

}  // namespace lockstep::train
