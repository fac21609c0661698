#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

/// Grids are for people: wider worlds and longer plans are refused by UsageError.
constexpr int kMostGridRanks = 16;
constexpr int64_t kMostGridSteps = 4096;

/// A picture of a plan: a column per rank, a row per round, and the two ends of a message in the same row
/// wherever that can be. Cells are `->1 c3` (send chunk 3 to rank 1), `<-3 c2 +` (receive chunk 2 from rank 3
/// and add it), and what ranks do by themselves. A legend follows.
std::string grid(const Plan& plan);

/// For each rank and step, the row of the grid. Ranks count rounds each for itself; rows put those rounds
/// beside each other that exchange messages, later ones below.
std::vector<std::vector<int>> grid_rows(const Plan& plan);

}  // namespace lockstep::plan
