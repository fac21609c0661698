#pragma once

#include <span>
#include <vector>

#include "lab/checker.h"
#include "lockstep/plan/pipeline.h"

namespace lab::gpipe {

using MicroBatches = std::vector<std::span<const float>>;

/// What the lesson asks for.
struct Seam {
  MicroBatches (*split_batch)(std::span<const float> batch, int microbatches);
  std::vector<double> (*loss_weights)(const MicroBatches& microbatches);
  std::vector<lockstep::plan::Action> (*gpipe)(int stage, int stages, int microbatches);
};

void check(const Seam& seam, Checker& checker);
/// Its first part, the micro-batcher and the weights, in check_split.cpp.
void check_split(const Seam& seam, Checker& checker);

}  // namespace lab::gpipe
