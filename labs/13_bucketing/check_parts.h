#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "13_bucketing/check.h"

namespace lab::bucketing {

using Buckets = std::vector<std::vector<size_t>>;

/// The buckets as they should be.
Buckets filled(const std::vector<int64_t>& bytes, int64_t cap);
/// Of each trainable parameter's gradient.
std::vector<int64_t> bytes_of(const Net& net);
int64_t sum_of(const std::vector<int64_t>& bytes, const std::vector<size_t>& bucket);

/// What is called after backward.
using Finish = std::function<void()>;
/// That of the learner's Bucketer, which lives as long.
Finish finish_of(const Seam& seam, Rank& rank, Net& net, int64_t cap);
/// A step of training; returns the loss.
double step(const Finish& finish, Net& net, torch::optim::Optimizer& optimizer, const torch::Tensor& input,
            const torch::Tensor& target);

void check_fill(const Seam& seam, Checker& checker);
void check_memory(const Seam& seam, Checker& checker);
void check_time(const Seam& seam, Checker& checker);

}  // namespace lab::bucketing
