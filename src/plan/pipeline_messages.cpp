#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/error.h"
#include "lockstep/plan/pipeline.h"
#include "plan/pipeline_rules.h"

namespace lockstep::plan {

namespace {

using enum ActionKind;

bool is_backward(const Action& action) {
  return action.kind == kBackward || action.kind == kInputGrad;
}

/// `message`, if the shape has such a one.
std::optional<Action> if_sent(const PipelineShape& shape, const Action& message) {
  if (shape.peer_of(message) < 0) return std::nullopt;
  return message;
}

/// What carries away what an action makes.
std::optional<Action> send_after(const PipelineShape& shape, const Action& action) {
  if (action.kind == kForward) return if_sent(shape, {kSendForward, action.stage, action.microbatch});
  if (is_backward(action)) return if_sent(shape, {kSendBackward, action.stage, action.microbatch});
  return std::nullopt;
}

/// What brings what an action needs.
std::optional<Action> receive_before(const PipelineShape& shape, const Action& action) {
  if (action.kind == kForward) return if_sent(shape, {kRecvForward, action.stage, action.microbatch});
  if (is_backward(action)) return if_sent(shape, {kRecvBackward, action.stage, action.microbatch});
  return std::nullopt;
}

/// The other end of a send.
Action receive_of(const Action& send) {
  return send.kind == kSendForward ? Action{kRecvForward, send.stage + 1, send.microbatch}
                                   : Action{kRecvBackward, send.stage - 1, send.microbatch};
}

/// The receives of one rank.
class Receiver {
 public:
  /// Somebody sends this, after what they sent before.
  void expect(int sender, const Action& receive) { underway_[sender].push_back(receive); }

  /// Adds `wanted` to the actions, after what the same sender sent before it.
  void receive(int sender, const Action& wanted, std::vector<Action>& actions) {
    const auto early = std::find(early_.begin(), early_.end(), wanted);
    if (early != early_.end()) {
      early_.erase(early);
      return;
    }
    auto& underway = underway_[sender];
    const auto found = std::find(underway.begin(), underway.end(), wanted);
    if (found == underway.end()) {
      actions.push_back(wanted);  // nobody sends it: for the verifier to tell
      return;
    }
    early_.insert(early_.end(), underway.begin(), found);
    actions.insert(actions.end(), underway.begin(), found + 1);
    underway.erase(underway.begin(), found + 1);
  }

 private:
  std::map<int, std::deque<Action>> underway_;  ///< By sender, in its order.
  std::vector<Action> early_;                   ///< Received before it was needed.
};

}  // namespace

PipelinePlan with_messages(PipelinePlan computation) {
  const PipelineShape& shape = computation.shape;
  if (const auto problem = misplaced(computation); !problem.empty()) {
    throw UsageError(fmt::format("messages of {}: {}", computation.schedule, problem));
  }
  std::vector<Receiver> receivers(static_cast<size_t>(shape.ranks));
  for (size_t rank = 0; rank < computation.actions.size(); ++rank) {
    for (const auto& action : computation.actions[rank]) {
      const auto send = send_after(shape, action);
      if (!send) continue;
      receivers[static_cast<size_t>(shape.peer_of(*send))].expect(static_cast<int>(rank), receive_of(*send));
    }
  }
  for (size_t rank = 0; rank < computation.actions.size(); ++rank) {
    std::vector<Action> actions;
    for (const auto& action : computation.actions[rank]) {
      if (const auto wanted = receive_before(shape, action)) {
        receivers[rank].receive(shape.peer_of(*wanted), *wanted, actions);
      }
      actions.push_back(action);
      if (const auto send = send_after(shape, action)) actions.push_back(*send);
    }
    computation.actions[rank] = std::move(actions);
  }
  return computation;
}

}  // namespace lockstep::plan
