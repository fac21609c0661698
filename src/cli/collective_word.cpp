#include "cli/collective_word.h"

#include <fmt/format.h>

#include "cli/nearest.h"
#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"

namespace lockstep::cli {

std::vector<std::string> collective_words() {
  std::vector<std::string> words;
  for (int i = 0; i <= static_cast<int>(plan::Collective::kBarrier); ++i) {
    words.push_back(plan::plain_name(name(static_cast<plan::Collective>(i))));
  }
  return words;
}

plan::Collective collective_named(const std::string& word) {
  try {
    return plan::find_collective(word);
  } catch (const UsageError&) {
    auto known = collective_words();
    known.emplace_back("pipeline");
    const std::string near = nearest(plan::plain_name(word), known);
    if (near.empty()) throw;
    throw UsageError(fmt::format("collective '{}': unknown; hint: did you mean {}?", word, near));
  }
}

void require_algorithm(plan::Collective collective, const std::string& word) {
  try {
    plan::find_algorithm(collective, word);
  } catch (const UsageError& error) {
    std::vector<std::string> known;
    for (const auto& algorithm : plan::algorithms_of(collective)) known.emplace_back(algorithm.name);
    throw UsageError(with_nearest(error.what(), word, known));
  }
}

}  // namespace lockstep::cli
