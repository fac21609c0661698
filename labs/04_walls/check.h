#pragma once

#include <cstdint>
#include <span>

#include "04_walls/memory.h"
#include "lab/checker.h"

namespace lab::walls {

/// What the lesson asks for.
struct Seam {
  std::int64_t (*parameter_count)(std::span<const std::int64_t> widths);
  Memory (*model_memory)(std::int64_t parameters, int bits);
  std::int64_t (*activation_bytes)(std::span<const std::int64_t> widths, std::int64_t batch, int bits);
  double (*gigabytes)(std::int64_t bytes);
  double (*days_to_train)(double parameters, double samples, double flops_per_second);
  std::int64_t (*ranks_needed)(std::int64_t bytes, std::int64_t bytes_of_a_card);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::walls
