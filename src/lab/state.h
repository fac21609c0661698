#pragma once

#include <filesystem>
#include <map>
#include <set>

namespace lockstep::lab {

/// How far a learner is, kept in `my_work/progress.txt`: a line each, to be read and mended by hand.
struct State {
  int current = 0;           ///< The lesson that a bare `lockstep lab` watches; 0 before the first start.
  std::set<int> passed;      ///< By their check.
  std::set<int> skipped;     ///< Proved by another lesson of their module (fast-track).
  std::map<int, int> hints;  ///< By lesson: how many have been shown.

  bool is_done(int lesson) const { return passed.contains(lesson) || skipped.contains(lesson); }
};

/// An absent file is the beginning. Throws UsageError by line for one that says something else.
State read_state(const std::filesystem::path& file);

/// Replaces it, whole or not at all.
void write_state(const std::filesystem::path& file, const State& state);

}  // namespace lockstep::lab
