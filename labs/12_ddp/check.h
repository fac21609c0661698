#pragma once

#include <memory>

#include "lab/checker.h"
#include "lab/nets.h"

namespace lab::ddp {

/// What the lesson asks for: a class whose objects are made once and step often.
struct Seam {
  std::shared_ptr<void> (*make)(Rank& rank, Net& net);
  float (*train_step)(void* ddp, torch::optim::Optimizer& optimizer, const torch::Tensor& input,
                      const torch::Tensor& target);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::ddp
