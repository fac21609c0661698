#include "plan/check.h"

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep::plan {

void check_world(std::string_view plan, int world) {
  if (world < 1 || world > kMostRanks) {
    throw UsageError(fmt::format("{}: a world of {} ranks is not between 1 and {}", plan, world, kMostRanks));
  }
}

void check_root(std::string_view plan, int root, int world) {
  if (root < 0 || root >= world) {
    throw UsageError(fmt::format("{}: root {} is not between 0 and {}", plan, root, world - 1));
  }
}

void check_ranks_per_node(std::string_view plan, int ranks_per_node) {
  if (ranks_per_node < 1) {
    throw UsageError(fmt::format("{}: {} ranks per node; hint: give at least 1", plan, ranks_per_node));
  }
}

}  // namespace lockstep::plan
