#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::plan {

/// What an action does, for one micro-batch of one stage.
enum class ActionKind : uint8_t {
  kForward,       ///< F
  kBackward,      ///< B: input-grad and weight-grad at once.
  kInputGrad,     ///< I: the gradient of the stage's input, which the stage before waits for.
  kWeightGrad,    ///< W: the gradients of the stage's weights, for which nobody waits.
  kSendForward,   ///< SEND_F: the stage's output, to the next stage.
  kRecvForward,   ///< RECV_F: the stage's input, from the stage before.
  kSendBackward,  ///< SEND_B: the gradient of the stage's input, to the stage before.
  kRecvBackward,  ///< RECV_B: the gradient of the stage's output, from the next stage.
};

/// As in the text form: `F`, `SEND_F`, ...
std::string_view name(ActionKind kind);

/// One line of a pipeline plan.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;  ///< Of the whole model, from 0: the one that computes, sends or receives.
  int microbatch = 0;
  bool operator==(const Action&) const = default;

  bool is_compute() const { return kind <= ActionKind::kWeightGrad; }
  bool is_send() const { return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward; }
  bool is_receive() const { return kind == ActionKind::kRecvForward || kind == ActionKind::kRecvBackward; }
};

/// What a pipeline plan is made for. A model of `ranks * chunks` stages: stage s is on rank s % ranks.
struct PipelineShape {
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1;  ///< Stages on each rank.
  bool operator==(const PipelineShape&) const = default;

  int stages() const { return ranks * chunks; }
  int rank_of(int stage) const { return stage % ranks; }
  /// The rank at the other end of a message; -1 if the action is none, or if there is nothing to send: before
  /// the first stage, after the last, and between two stages of one rank.
  int peer_of(const Action& action) const;
};

/// Computation and messages of a training step: for each rank, its actions in order. Messages between two
/// ranks arrive in the order in which they were sent, forward and backward ones together.
struct PipelinePlan {
  std::string schedule;
  PipelineShape shape;
  std::vector<std::vector<Action>> actions;  ///< By rank.
  bool operator==(const PipelinePlan&) const = default;
};

/// The most actions of all ranks together; larger plans are refused by UsageError.
constexpr int64_t kMostPipelineActions = 4'000'000;

/// A named way to order a pipeline's computation.
struct Schedule {
  std::string_view name;
  std::string_view summary;
  bool interleaves = false;      ///< It has several chunks on each rank; the others have one.
  bool splits_backward = false;  ///< Into I and W.
};

/// All of them, simplest first: naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2.
const std::vector<Schedule>& schedules();

/// One of schedules(), by a forgiving name (`1F1B`, `zb_h1`). Throws UsageError with what there is.
const Schedule& find_schedule(std::string_view name);

/// Why there is no plan of this schedule, one of schedules(), for this shape; "" if there is one.
std::string why_not(const Schedule& schedule, const PipelineShape& shape);

/// Makes a plan: the schedule's order of computation, then messages by with_messages(). Throws UsageError for
/// an unknown name, and with why_not().
///
/// P ranks, M micro-batches, V chunks. Every stage runs its backwards in the order of the micro-batches, so
/// that all schedules add up gradients in the same order.
///   naive        each micro-batch forward through all stages and back, before the next starts
///   gpipe        all forwards, then all backwards (Huang et al., 2019)
///   1f1b         P-1-r forwards on rank r, then a forward and a backward by turns (Narayanan et al., 2019)
///   interleaved  1f1b on V >= 2 chunks, in groups of P micro-batches; where P does not divide M, in M/P
///                groups (rounded down, at least one) as even as possible (Narayanan et al., 2021)
///   zb-h1        1f1b with the backward split; W comes r micro-batches after I. M >= P (Qi et al., 2023)
///   zb-h2        2(P-1-r) forwards first; W comes 2r micro-batches after I. M >= 2P-1
PipelinePlan make_pipeline_plan(std::string_view schedule, const PipelineShape& shape);

/// Adds to a plan that has computation alone the messages that it needs: a send right after the action that
/// makes what it carries; its receive right before the action that needs it, or, if another message of the
/// same sender that was sent later is needed sooner, before that. So both ends of every pair of ranks agree
/// on the order. Throws UsageError for an action of a stage that its rank has not got; whether the order
/// makes sense is for verify_pipeline() to tell.
PipelinePlan with_messages(PipelinePlan computation);

/// What is left of a plan if nothing is trained: forwards and their messages.
PipelinePlan forward_only(PipelinePlan plan);

}  // namespace lockstep::plan
