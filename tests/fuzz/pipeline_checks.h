#pragma once

#include "fuzz/fuzz.h"
#include "lockstep/error.h"
#include "lockstep/plan/pipeline_grid.h"
#include "lockstep/plan/pipeline_simulate.h"
#include "lockstep/plan/pipeline_verify.h"
#include "plan/pipeline_reference.h"

namespace lockstep::fuzz {

/// What holds for any pipeline plan that was read: it reads back to itself and can be judged, and what the
/// verifier accepts can be simulated, drawn, and gives the gradients of one process.
inline void check_pipeline(const plan::PipelinePlan& plan, const plan::PipelinePlan& back) {
  require(back == plan, "a plan reads back to itself");
  const plan::PipelineVerdict verdict = plan::verify_pipeline(plan);
  require(verdict.ok == verdict.problem.empty(), "a verdict has a problem or is good");
  require(verdict.problem.size() < 2000, "a problem is short");
  if (!verdict.ok) return;
  require(plan::simulate_pipeline(plan).makespan > 0, "a plan takes time");
  if (plan.shape.ranks > 8 || plan.shape.stages() * plan.shape.microbatches > 200) return;
  require(!plan::pipeline_grid(plan).empty(), "a plan can be drawn");
  for (const auto sends : plan::kAllPipelineSends) {
    const std::string fault = plan::reference::fault_of(plan, sends, 0);
    require(fault == (verdict.completes(sends) ? "" : "deadlock"),
            ("a proved plan trains like one process: " + fault).c_str());
  }
}

}  // namespace lockstep::fuzz
