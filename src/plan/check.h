#pragma once

#include <string_view>

namespace lockstep::plan {

constexpr int kMostRanks = 1 << 15;

/// Each throws UsageError, naming the plan and the value.
void check_world(std::string_view plan, int world);
void check_root(std::string_view plan, int root, int world);
void check_ranks_per_node(std::string_view plan, int ranks_per_node);

}  // namespace lockstep::plan
