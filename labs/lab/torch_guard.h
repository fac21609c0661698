#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "lab/checker.h"

namespace lab {

/// Says by name what LibTorch refused: for the errors of training loops that everybody meets once.
[[noreturn]] inline void fail_with_torch(Checker& checker, const std::string& doing,
                                         const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  const std::string what = doing + ": LibTorch says: " + text.substr(0, 600);
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  if (says("leaf Variable that requires grad")) {
    checker.fail("update in the graph", what,
                 "Autograd records what happens to weights, the update itself included. Put a "
                 "torch::NoGradGuard before the update: nothing is recorded while it lives.");
  }
  if (says("does not require grad")) {
    checker.fail("no graph", what,
                 "backward() walks from the loss back to the weights, and found no way: detach(), item(), "
                 "data(), or a NoGradGuard that still lives cut it off. Make the loss out of the model's "
                 "output itself.");
  }
  if (says("backward through the graph a second time")) {
    checker.fail("graph used twice", what,
                 "backward() frees what it has walked over. Run forward again in every step.");
  }
  if (says("undefined Tensor")) {
    checker.fail("no gradient yet", what,
                 "A parameter's .grad() is not there before backward(). Ask .grad().defined(), or call "
                 "backward() first.");
  }
  checker.fail("exception", what, "LibTorch threw an exception that your code did not catch.");
}

/// Runs a learner's code that calls LibTorch.
template <typename Body>
auto guard_torch(Checker& checker, const std::string& doing, Body&& body) {
  tell_progress(doing);
  try {
    return std::forward<Body>(body)();
  } catch (const c10::Error& error) {
    fail_with_torch(checker, doing, error);
  }
}

}  // namespace lab
