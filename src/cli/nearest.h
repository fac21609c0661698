#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

/// The candidate that `word` was most likely meant to be, or "" when none is close (more than a third of the
/// letters differ, so that a word of two letters has none; but `-w` is near to `--world`).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// A message whose hint lists the candidates, with the nearest at its end if there is one.
std::string with_nearest(std::string_view message, std::string_view word,
                         const std::vector<std::string>& candidates);

}  // namespace lockstep::cli
