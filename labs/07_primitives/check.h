#pragma once

#include <span>

#include "lab/checker.h"

namespace lab::primitives {

/// What the lesson asks for.
struct Seam {
  void (*barrier)(Rank& rank);
  void (*broadcast)(Rank& rank, std::span<float> data, int root);
  void (*reduce)(Rank& rank, std::span<float> data, int root);
  void (*scatter)(Rank& rank, std::span<const float> all, std::span<float> part, int root);
  void (*gather)(Rank& rank, std::span<const float> part, std::span<float> all, int root);
  void (*all_gather)(Rank& rank, std::span<const float> part, std::span<float> all);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::primitives
