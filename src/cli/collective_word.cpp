#include "cli/collective_word.h"

#include <fmt/format.h>

#include <vector>

#include "cli/nearest.h"
#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"

namespace lockstep::cli {

plan::Collective collective_named(const std::string& word) {
  try {
    return plan::find_collective(word);
  } catch (const UsageError&) {
    std::vector<std::string> known = {"pipeline"};
    for (int i = 0; i <= static_cast<int>(plan::Collective::kBarrier); ++i) {
      known.push_back(plan::plain_name(name(static_cast<plan::Collective>(i))));
    }
    const std::string near = nearest(plan::plain_name(word), known);
    if (near.empty()) throw;
    throw UsageError(fmt::format("collective '{}': unknown; hint: did you mean {}?", word, near));
  }
}

}  // namespace lockstep::cli
