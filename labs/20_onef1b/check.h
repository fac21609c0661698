#pragma once

#include <vector>

#include "lab/checker.h"
#include "lockstep/plan/pipeline.h"

namespace lab::onef1b {

/// What the lesson asks for.
struct Seam {
  std::vector<lockstep::plan::Action> (*one_f_one_b)(int stage, int stages, int microbatches);
  std::vector<lockstep::plan::Action> (*zero_bubble)(int stage, int stages, int microbatches);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::onef1b
