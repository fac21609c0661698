#pragma once

#include <memory>

#include "lockstep/train/optim/fused_adam.h"
#include "train/run/settings.h"
#include "train/run/weights.h"

namespace lockstep::train {

/// AdamW as the settings say, of all weights that are trained: matrices decay, biases and norms do not.
std::unique_ptr<FusedAdamW> make_optimizer(const Weights& weights, const TrainSettings& settings);

}  // namespace lockstep::train
