#include "cli/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace lockstep::cli {

int edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> cost((a.size() + 1) * width);
  const auto at = [&](size_t i, size_t j) -> int& { return cost[i * width + j]; };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() < 3) {
    const bool is_flag = word.size() == 2 && word[0] == '-';
    const auto begins = [&](const std::string& candidate) {
      return is_flag && candidate.starts_with("--") && candidate[2] == std::tolower(word[1]);
    };
    const auto found = std::find_if(candidates.begin(), candidates.end(), begins);
    return found == candidates.end() ? "" : *found;
  }
  std::string best;
  int best_distance = static_cast<int>(word.size()) / 3 + 1;
  for (const auto& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    if (distance < best_distance || (distance == best_distance && best.empty())) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string with_nearest(std::string_view message, std::string_view word,
                         const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  if (near.empty()) return std::string(message);
  return fmt::format("{}; did you mean {}?", message, near);
}

}  // namespace lockstep::cli
