#pragma once

#include <span>

#include "lab/checker.h"

namespace lab::ring {

/// What the lesson asks for.
struct Seam {
  void (*ring_all_reduce)(Rank& rank, std::span<float> data);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::ring
