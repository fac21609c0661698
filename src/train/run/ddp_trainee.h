#pragma once

#include <memory>

#include "train/run/trainee.h"

namespace lockstep::train {

/// Every rank has the whole model; also for one rank. All ranks call it.
std::unique_ptr<Trainee> make_ddp_trainee(const Run& run, const Task& task, const Communicator& comm);

}  // namespace lockstep::train
