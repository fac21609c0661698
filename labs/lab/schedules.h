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

/// Calls the learner's code in a child: `call` for each input in turn, then for each again, from the last to
/// the first. Returns the first answers; other ones the second time are a failure. `name` says what is
/// called.
template <typename Input, typename Name, typename Call>
auto ask_twice(Checker& checker, const std::vector<Input>& inputs, const Name& name, const Call& call) {
  using Answers = std::vector<std::invoke_result_t<Call, const Input&>>;
  const auto [first, second] = checker.in_child([&] {
    std::pair<Answers, Answers> both;
    const auto ask = [&](const Input& input) {
      checker.in_part(name(input));
      tell_progress(name(input));
      return call(input);
    };
    for (const auto& input : inputs) both.first.push_back(ask(input));
    for (size_t i = inputs.size(); i-- > 0;) both.second.push_back(ask(inputs[i]));
    return both;
  });
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::string once, again;
    data::put(once, first[i]);
    data::put(again, second[inputs.size() - 1 - i]);
    checker.expect(
        once == again, "answers differ",
        name(inputs[i]) + " returned something else when it was called for the second time",
        "The same call must return the same every time. A static or global variable keeps something "
        "from one call to the next, or a variable is read before it has a value.");
  }
  return first;
}

/// Why a stage's order is not an order of F and B, or of F, I and W, of every micro-batch.
struct Flaw {
  enum class Kind : uint8_t {
    kNothing,           ///< No actions at all.
    kOtherStage,        ///< An action of a stage that is not its own.
    kNoSuchMicrobatch,  ///< Below 0, or M and above.
    kOtherKind,         ///< Messages, or halves of a backward where it is whole, or the other way round.
    kTwice,
    kTooEarly,        ///< A backward before its forward.
    kWeightTooEarly,  ///< A weight-grad before its input-grad.
    kMissing,
  };
  Kind kind = Kind::kNothing;
  std::string what;  ///< For people, with the whole order.
  lockstep::plan::Action action;
};

/// A learner's function that lists what a stage runs.
using OrderFunction = std::vector<lockstep::plan::Action> (*)(int stage, int stages, int microbatches);

struct PipelineSize {
  int stages = 1;
  int microbatches = 1;
};

/// Calls `order`, which learners know as `name`, for all stages of all sizes: plans of computation alone.
/// Lists that are far too long are cut.
std::vector<lockstep::plan::PipelinePlan> ask_orders(Checker& checker, const std::string& name,
                                                     OrderFunction order,
                                                     const std::vector<PipelineSize>& sizes);

/// Sizes that no text shows: more than 8 stages with about as many micro-batches, with more than 256, and, if
/// `with_fewer`, with fewer micro-batches than stages.
std::vector<PipelineSize> fresh_sizes(const Checker& checker, bool with_fewer);

PipelineSize size_of(const lockstep::plan::PipelinePlan& plan);
/// `1 micro-batch`, `2 micro-batches`
std::string microbatches_text(int count);
/// `4 stages, 1 micro-batch`
std::string to_string(const PipelineSize& size);

/// What a stage is asked to order.
struct StageShape {
  int stage = 0;
  int stages = 1;
  int microbatches = 1;
  bool splits_backward = false;  ///< Into I and W.
};

StageShape shape_of(const lockstep::plan::PipelinePlan& plan, int stage);
/// `stage 1 of 4, 8 micro-batches`
std::string to_string(const StageShape& shape);
/// `F0 F1 B0 ...`, shortened where it is long.
std::string to_string(const std::vector<lockstep::plan::Action>& actions);

/// The first flaw; missing ones come last, but for a forward whose backward is there.
std::optional<Flaw> first_flaw(const StageShape& shape, const std::vector<lockstep::plan::Action>& actions);
/// Fails by the name that a flaw has in all lessons.
[[noreturn]] void fail_for(Checker& checker, const Flaw& flaw);
/// Fails for the first flaw of any stage.
void expect_sound(Checker& checker, const lockstep::plan::PipelinePlan& order);

/// Runs a plan on the simulator's clock as a run to look at, in cycles.
Report to_report(const lockstep::plan::PipelinePlan& plan,
                 const lockstep::plan::PipelineSimulation& simulation);
/// Notes a plan that verify_pipeline() accepts as a picture, and shows it as the run to look at; not if it is
/// too large to see anything.
void picture(Checker& checker, const std::string& title, const lockstep::plan::PipelinePlan& plan);

}  // namespace lab
