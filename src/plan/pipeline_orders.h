#pragma once

#include <vector>

#include "lockstep/plan/pipeline.h"

namespace lockstep::plan {

// What each schedule computes on a rank, in order; messages come later. The shape is one that why_not()
// accepts.

std::vector<Action> naive_order(const PipelineShape& shape, int rank);
std::vector<Action> gpipe_order(const PipelineShape& shape, int rank);
std::vector<Action> one_forward_one_backward_order(const PipelineShape& shape, int rank);
std::vector<Action> interleaved_order(const PipelineShape& shape, int rank);
std::vector<Action> zero_bubble_h1_order(const PipelineShape& shape, int rank);
std::vector<Action> zero_bubble_h2_order(const PipelineShape& shape, int rank);

}  // namespace lockstep::plan
