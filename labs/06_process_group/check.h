#pragma once

#include <span>

#include "06_process_group/group.h"
#include "lab/checker.h"

namespace lab::group {

/// What the lesson asks for.
struct Seam {
  Place (*place_of)(const Environment& environment);
  Roll (*call_the_roll)(Line& line, int world_size, double deadline_s);
  void (*ping_pong)(Rank& rank, std::span<float> ball, int rounds);
};

void check(const Seam& seam, Checker& checker);
/// Its second half, in check_group.cpp.
void check_roll(const Seam& seam, Checker& checker);
void check_ping_pong(const Seam& seam, Checker& checker);

}  // namespace lab::group
