#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lab/checker.h"

namespace lab::choosing {

/// What the lesson asks for.
struct Seam {
  void (*halving_doubling_all_reduce)(Rank& rank, std::span<float> data);
  std::string (*choose)(int world, std::int64_t bytes, double alpha_us, double beta_us_per_byte);
};

void check(const Seam& seam, Checker& checker);
/// Its second part, in check_choice.cpp.
void check_choice(const Seam& seam, Checker& checker);

}  // namespace lab::choosing
