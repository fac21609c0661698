#pragma once

#include <cstdint>
#include <vector>

#include "lab/checker.h"
#include "lab/nets.h"

namespace lab::naive_dp {

/// What the lesson asks for.
struct Seam {
  void (*broadcast_weights)(Rank& rank, Net& net);
  std::vector<int64_t> (*samples_of)(int rank, int world_size, int64_t size, uint64_t seed, uint64_t epoch);
  float (*train_step)(Rank& rank, Net& net, torch::optim::Optimizer& optimizer, const torch::Tensor& input,
                      const torch::Tensor& target);
};

/// Its parts.
void check_sampler(const Seam& seam, Checker& checker);

void check(const Seam& seam, Checker& checker);

}  // namespace lab::naive_dp
