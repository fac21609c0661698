#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "08_allreduce/check.h"
#include "lab/sums.h"

namespace lab::naive {

using Function = void(Rank& rank, std::span<float> data);

/// A call of one of the two functions, on all ranks.
struct Case {
  int world = 1;
  size_t count = 0;
  bool rendezvous = false;
};

/// What a call left.
struct Left {
  Report report;
  std::vector<GuardedFloats> rows;  ///< By rank.
};

void check_formula(const Seam& seam, Checker& checker);

inline size_t index(int rank) {
  return static_cast<size_t>(rank);
}
/// `naive_all_reduce of 12 floats on 4 ranks`
std::string described(const std::string& name, const Case& one);

}  // namespace lab::naive
