#pragma once

#include <memory>

#include "train/run/trainee.h"

namespace lockstep::train {

/// Every rank has a part of the layers. All ranks call it. `first_step`: the steps that were done before.
std::unique_ptr<Trainee> make_pipeline_trainee(const Run& run, const Task& task, const Communicator& comm,
                                               int64_t first_step);

}  // namespace lockstep::train
