#pragma once

#include <vector>

#include "lockstep/plan/pipeline.h"

namespace lockstep::plan {

/// What one micro-batch costs a rank, over all of its chunks: one of V chunks costs 1/V. Any unit of time,
/// any unit of memory.
struct RankCosts {
  double forward = 1;       ///< F
  double input_grad = 1;    ///< I
  double weight_grad = 1;   ///< W; a whole backward takes I + W.
  double activation = 1;    ///< M_B: held from the start of F to the end of I or B.
  double weight_input = 1;  ///< M_W: held from the end of I to the end of W.
};

struct PipelineCosts {
  std::vector<RankCosts> ranks = {{}};  ///< One for all, or one for each rank.
  double message = 0;  ///< Time from a send to when its receive can end. Senders go on at once.
};

/// When an action ran. A receive takes as long as it waits.
struct ActionSpan {
  double start = 0;
  double end = 0;
};

struct PipelineSimulation {
  double makespan = 0;                   ///< When the last rank is done.
  double bubble = 0;                     ///< makespan - M T, T = F + I + W of the rank with the most to do.
  double bubble_of_total = 0;            ///< bubble / makespan
  double bubble_of_ideal = 0;            ///< bubble / (M T)
  std::vector<double> utilisation;       ///< By rank: its time in F, B, I and W / makespan.
  std::vector<double> peak_activations;  ///< By rank: the most memory held at once.
  std::vector<std::vector<ActionSpan>> actions;  ///< As the plan's.
};

/// Runs a plan on a virtual clock; sends return at once. The same result every time. Throws UsageError for
/// costs that are negative, not finite, or not one or one per rank, and for a plan that verify_pipeline()
/// refuses.
PipelineSimulation simulate_pipeline(const PipelinePlan& plan, const PipelineCosts& costs = {});

}  // namespace lockstep::plan
