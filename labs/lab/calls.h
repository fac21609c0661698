#pragma once

#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lab/checker.h"

namespace lab {

/// Judges calls that one process makes one after the other, as a training does. `run(one)` makes a call in a
/// child and returns what it left, data with a `Report report`; `judge(one, left)` says here what is wrong
/// with it. A run's own problem is a failure unless `judge` names it. A call that is wrong after others and
/// right as the first of a process fails as `state kept`.
template <typename Case, typename Run, typename Judge>
void judge_calls(Checker& checker, const std::vector<Case>& cases, const Run& run, const Judge& judge) {
  using Left = std::invoke_result_t<Run, const Case&>;
  const auto run_all = [&](std::span<const Case> some) {
    return checker.in_child([&] {
      std::vector<Left> all;
      for (const Case& one : some) {
        all.push_back(run(one));
        if (!all.back().report.problem.empty()) break;
      }
      return all;
    });
  };
  const auto all = run_all(cases);
  for (size_t i = 0; i < all.size(); ++i) {
    const Report& report = all[i].report;
    const std::optional<Failure> failure = judge(cases[i], all[i]);
    if (!failure && report.problem.empty()) continue;
    const std::string what = failure ? failure->what : report.what;
    if (i > 0) {
      const Left alone = run_all({&cases[i], 1}).at(0);
      checker.in_world(static_cast<int>(report.bytes.size()));
      checker.expect(
          !alone.report.problem.empty() || judge(cases[i], alone).has_value(), "state kept",
          (failure ? failure->name : report.problem) + ": " + what,
          "The same call is right as the first one of a process, and wrong after others. What does "
          "your code keep between calls, in a static or global variable? Or does it read memory that it "
          "never wrote?");
    }
    checker.in_world(static_cast<int>(report.bytes.size()));
    if (!report.events.empty()) checker.show(report);
    if (failure) checker.fail(failure->name, failure->what, failure->meaning);
    checker.expect_no_problem(report);
  }
}

/// Bytes that eight calls keep after others before them: those of a list that grows with each.
template <typename Call>
int64_t kept_bytes(const Call& call) {
  const auto calls = [&](int count) {
    for (int i = 0; i < count; ++i) call();
    return static_cast<int64_t>(heap_bytes());
  };
  const int64_t before = calls(4);
  return calls(8) - before;
}

}  // namespace lab
