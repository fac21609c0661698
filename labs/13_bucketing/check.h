#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lab/checker.h"
#include "lab/nets.h"

namespace lab::bucketing {

/// What the lesson asks for: how buckets are filled, and a class that averages by them.
struct Seam {
  std::vector<std::vector<size_t>> (*fill_buckets)(const std::vector<int64_t>& bytes, int64_t cap_bytes);
  std::shared_ptr<void> (*make)(Rank& rank, Net& net, int64_t cap_bytes);
  void (*finish)(void* bucketer);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::bucketing
