#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/checker.h"
#include "lockstep/plan/pipeline.h"
#include "lockstep/plan/pipeline_simulate.h"

/// What the checks of pipeline schedules share: a learner gives the order of a stage's computation, which
/// must be sound before messages are added to it and the plan is proved.
namespace lab {

/// Why a stage's order is no order of F and B, or of F, I and W, of every micro-batch.
struct Flaw {
  enum class Kind : uint8_t {
    kNothing,           ///< No actions at all.
    kOtherStage,        ///< An action of a stage that is not its own.
    kNoSuchMicrobatch,  ///< Below 0, or M and above.
    kOtherKind,         ///< Messages, or halves of a backward where it is whole, or the other way round.
    kTwice,
    kTooEarly,  ///< What it needs of this stage comes later.
    kMissing,
  };
  Kind kind = Kind::kNothing;
  std::string what;  ///< For people, with the whole order.
  lockstep::plan::Action action;
};

/// What a stage is asked to order.
struct StageShape {
  int stage = 0;
  int stages = 1;
  int microbatches = 1;
  bool splits_backward = false;  ///< Into I and W.
};

/// `stage 1 of 4, 8 micro-batches`
std::string to_string(const StageShape& shape);
/// `F0 F1 B0 ...`, shortened where it is long.
std::string to_string(const std::vector<lockstep::plan::Action>& actions);

/// The first flaw; missing ones come last.
std::optional<Flaw> first_flaw(const StageShape& shape, const std::vector<lockstep::plan::Action>& actions);
/// Fails by the name that a flaw has in all lessons.
[[noreturn]] void fail_for(Checker& checker, const Flaw& flaw);

/// Runs a plan on the simulator's clock as a run to look at: a cycle is a microsecond.
Report to_report(const lockstep::plan::PipelinePlan& plan,
                 const lockstep::plan::PipelineSimulation& simulation);

}  // namespace lab
