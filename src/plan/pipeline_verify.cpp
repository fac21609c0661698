#include "lockstep/plan/pipeline_verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/plan/pipeline_text.h"
#include "plan/pipeline_memory.h"
#include "plan/pipeline_rules.h"
#include "plan/pipeline_walk.h"

namespace lockstep::plan {

namespace {

using enum ActionKind;

/// The visitor that looks whether both ends of a message mean the same one.
class Pairs {
 public:
  struct Message {
    int from;
    size_t index;
    Action action;
  };

  explicit Pairs(std::string& problem) : problem_(problem) {}

  void compute(int, size_t, const Action&) {}
  Message send(int rank, size_t index, const Action& action) { return {rank, index, action}; }

  void receive(int rank, size_t index, const Action& action, const Message& message) {
    const Action wanted = action.kind == kRecvForward
                              ? Action{kSendForward, action.stage - 1, action.microbatch}
                              : Action{kSendBackward, action.stage + 1, action.microbatch};
    if (message.action == wanted || !problem_.empty()) return;
    problem_ = fmt::format("rank {} action {} ({}): gets {}, which rank {} sends in action {}", rank, index,
                           to_string(action), to_string(message.action), message.from, message.index);
  }

 private:
  std::string& problem_;
};

/// The visitor that looks for deadlocks alone.
struct NoActions {
  struct Message {};
  void compute(int, size_t, const Action&) {}
  Message send(int, size_t, const Action&) { return {}; }
  void receive(int, size_t, const Action&, Message) {}
};

std::vector<BlockedRank> blocked_ranks(const PipelinePlan& plan, PipelineSends sends) {
  NoActions visitor;
  return PipelineWalk(plan, sends, visitor).run();
}

std::string deadlock_problem(const PipelinePlan& plan, const std::vector<BlockedRank>& blocked) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(blocked.size(), kShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "deadlock: " : ", ", describe(plan, blocked[i]));
  }
  if (blocked.size() > kShown) text += fmt::format(", and {} more", blocked.size() - kShown);
  return text;
}

}  // namespace

std::string_view name(PipelineSends sends) {
  switch (sends) {
    case PipelineSends::kBlocking:
      return "blocking";
    case PipelineSends::kForwardAsync:
      return "forward async";
    case PipelineSends::kBackwardAsync:
      return "backward async";
    case PipelineSends::kAsync:
      return "async";
  }
  return "?";
}

PipelineVerdict verify_pipeline(const PipelinePlan& plan) {
  PipelineVerdict verdict;
  verdict.problem = broken_rule(plan);
  if (!verdict.problem.empty()) return verdict;

  Pairs pairs(verdict.problem);
  auto blocked = PipelineWalk(plan, PipelineSends::kAsync, pairs).run();
  if (!verdict.problem.empty()) return verdict;

  verdict.problem = deadlock_problem(plan, blocked);
  verdict.blocked[static_cast<size_t>(PipelineSends::kAsync)] = std::move(blocked);
  for (const auto sends : kAllPipelineSends) {
    if (sends == PipelineSends::kAsync) continue;
    verdict.blocked[static_cast<size_t>(sends)] = blocked_ranks(plan, sends);
  }
  verdict.ok = verdict.problem.empty();
  for (const auto& actions : plan.actions) {
    verdict.peak_activations.push_back(peak_memory(actions, 1, 1) / plan.shape.chunks);
  }
  return verdict;
}

std::string describe(const PipelinePlan& plan, const BlockedRank& blocked) {
  const Action& action = plan.actions[static_cast<size_t>(blocked.rank)][blocked.action];
  return fmt::format("rank {} waits in action {} ({}) for rank {}", blocked.rank, blocked.action,
                     to_string(action), blocked.peer);
}

}  // namespace lockstep::plan
