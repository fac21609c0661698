#pragma once

#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"

// What a pipeline promises, checked on any engine. All ranks call each of these; what is wrong, one thing
// each, is returned.
namespace lockstep::test {

/// Loss, gradients and weights are those of the whole model in one process: every schedule, micro-batches
/// that do not divide or are fewer than ranks, sums and means, accumulation.
std::vector<std::string> check_pipeline_results(Communicator& comm);

/// Dropout masks are those of a pipeline of one rank, however the model is cut, and whether it recomputes;
/// no two steps, micro-batches, layers or stages draw the same.
std::vector<std::string> check_pipeline_dropout(Communicator& comm);

/// A weight that the first and the last stage share stays the same to the last bit.
std::vector<std::string> check_pipeline_tied(Communicator& comm);

/// Ranks that are late at random change no bit.
std::vector<std::string> check_pipeline_delays(Communicator& comm);

/// What ran is what the plan says, and keeps as many activations as the literature says; an evaluation has no
/// backward.
std::vector<std::string> check_pipeline_run(Communicator& comm);

/// Nothing stays from step to step.
std::vector<std::string> check_pipeline_memory(Communicator& comm);

/// All of these, one after the other; a line each.
std::string check_pipeline(Communicator& comm);

}  // namespace lockstep::test
