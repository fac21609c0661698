#pragma once

#include "01_train_step/check.h"
#include "lab/mlp.h"

namespace lab::baseline {

constexpr int64_t kDepth = 16;
constexpr double kLearningRate = 0.02;

/// A value that a certain mistake gives.
struct Suspect {
  double value;
  std::string name, meaning;
};

void check_step(const Seam& seam, Checker& checker);
void check_train(const Seam& seam, Checker& checker);

}  // namespace lab::baseline
