#include "plan/pipeline_reference.h"

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <utility>

namespace lockstep::plan::reference {

namespace {

using enum ActionKind;
using Value = uint64_t;
using Key = std::pair<int, int>;  // stage and micro-batch

/// Some function of its arguments that has no two arguments alike.
Value mix(Value a, Value b, Value c) {
  Value x = a * 0x9E3779B97F4A7C15ULL + b * 0xC2B2AE3D27D4EB4FULL + c * 0x165667B19E3779F9ULL + 1;
  x ^= x >> 31;
  return x * 0xD6E8FEB86659FD93ULL;
}

Value data(int microbatch) {
  return mix(7, static_cast<Value>(microbatch), 7);
}
Value forward(int stage, Value input) {
  return mix(static_cast<Value>(stage), input, 1);
}
Value loss_gradient(Value output) {
  return mix(output, 2, 2);
}
Value input_gradient(int stage, Value input, Value gradient) {
  return mix(static_cast<Value>(stage), input, gradient);
}
Value weight_gradient(int stage, Value input, Value gradient) {
  return mix(static_cast<Value>(stage), gradient, input);
}

/// The sums over micro-batches that one process gets, by stage.
std::map<int, Value> expected_gradients(const PipelineShape& shape) {
  std::map<int, Value> sums;
  for (int microbatch = 0; microbatch < shape.microbatches; ++microbatch) {
    std::vector<Value> inputs = {data(microbatch)};
    for (int stage = 0; stage < shape.stages(); ++stage) inputs.push_back(forward(stage, inputs.back()));
    Value gradient = loss_gradient(inputs.back());
    for (int stage = shape.stages() - 1; stage >= 0; --stage) {
      const Value input = inputs[static_cast<size_t>(stage)];
      sums[stage] += weight_gradient(stage, input, gradient);
      gradient = input_gradient(stage, input, gradient);
    }
  }
  return sums;
}

struct Rank {
  size_t next = 0;
  std::map<Key, Value> inputs, outputs, output_gradients, input_gradients;
  std::map<Key, std::pair<Value, Value>> kept;  ///< From I for W: input and gradient.
  std::map<int, Value> gradients;
};

class PipelineMachine {
 public:
  PipelineMachine(const PipelinePlan& plan, PipelineSends sends)
      : plan_(plan), sends_(sends), ranks_(plan.actions.size()) {}

  std::string run(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<int> able;
    for (;;) {
      able.clear();
      for (int rank = 0; rank < plan_.shape.ranks; ++rank) {
        if (can_go_on(rank)) able.push_back(rank);
      }
      if (able.empty()) break;
      const int rank = able[random() % able.size()];
      if (auto fault = run_next(rank); !fault.empty()) return fault;
    }
    return result();
  }

 private:
  const Action* action(int rank) const {
    const auto& actions = plan_.actions[static_cast<size_t>(rank)];
    const size_t next = ranks_[static_cast<size_t>(rank)].next;
    return next < actions.size() ? &actions[next] : nullptr;
  }

  bool blocks(const Action& send) const {
    if (sends_ == PipelineSends::kAsync) return false;
    if (sends_ == PipelineSends::kBlocking) return true;
    return (sends_ == PipelineSends::kForwardAsync) == (send.kind == kSendBackward);
  }

  /// A send that waits is run with its receive, by the receiver.
  bool is_met_by(int receiver, int sender) const {
    const Action* send = action(sender);
    return send != nullptr && send->is_send() && blocks(*send) && plan_.shape.peer_of(*send) == receiver;
  }

  bool can_go_on(int rank) const {
    const Action* next = action(rank);
    if (next == nullptr || (next->is_send() && blocks(*next))) return false;
    if (!next->is_receive()) return true;
    const int sender = plan_.shape.peer_of(*next);
    if (sender < 0) return true;  // a fault, when it is run
    const auto channel = channels_.find({sender, rank});
    return (channel != channels_.end() && !channel->second.empty()) || is_met_by(rank, sender);
  }

  std::string run_next(int rank) {
    const Action next = *action(rank);
    const bool its_own = next.stage >= 0 && next.stage < plan_.shape.stages() && next.microbatch >= 0 &&
                         next.microbatch < plan_.shape.microbatches &&
                         plan_.shape.rank_of(next.stage) == rank;
    if (!its_own) return "an action of another rank";
    if (!next.is_compute() && plan_.shape.peer_of(next) < 0) return "a message to nobody";
    if (next.is_send()) {
      const auto value = taken(rank, next);
      if (!value) return "nothing to send";
      channels_[{rank, plan_.shape.peer_of(next)}].push_back(*value);
    } else if (next.is_receive()) {
      if (auto fault = receive(rank, next); !fault.empty()) return fault;
    } else if (!compute(ranks_[static_cast<size_t>(rank)], next)) {
      return "computes on what is not there";
    }
    ++ranks_[static_cast<size_t>(rank)].next;
    return "";
  }

  /// What a send carries.
  std::optional<Value> taken(int rank, const Action& send) {
    auto& of_rank = ranks_[static_cast<size_t>(rank)];
    auto& values = send.kind == kSendForward ? of_rank.outputs : of_rank.input_gradients;
    const auto found = values.find({send.stage, send.microbatch});
    if (found == values.end()) return std::nullopt;
    return found->second;
  }

  std::string receive(int rank, const Action& receive) {
    const int sender = plan_.shape.peer_of(receive);
    auto& channel = channels_[{sender, rank}];
    if (channel.empty()) {
      const auto value = taken(sender, *action(sender));
      if (!value) return "nothing to send";
      channel.push_back(*value);
      ++ranks_[static_cast<size_t>(sender)].next;
    }
    auto& of_rank = ranks_[static_cast<size_t>(rank)];
    auto& values = receive.kind == kRecvForward ? of_rank.inputs : of_rank.output_gradients;
    values[{receive.stage, receive.microbatch}] = channel.front();
    channel.pop_front();
    return "";
  }

  static const Value* find(const std::map<Key, Value>& values, int stage, int microbatch) {
    const auto found = values.find({stage, microbatch});
    return found == values.end() ? nullptr : &found->second;
  }

  bool compute(Rank& rank, const Action& action) {
    const Key key{action.stage, action.microbatch};
    if (action.kind == kForward) {
      if (action.stage == 0) rank.inputs[key] = data(action.microbatch);
      // On one rank, what the stage before made is at hand.
      const Value* before = find(rank.outputs, action.stage - 1, action.microbatch);
      if (before != nullptr) rank.inputs[key] = *before;
      const Value* input = find(rank.inputs, action.stage, action.microbatch);
      if (input == nullptr) return false;
      rank.outputs[key] = forward(action.stage, *input);
      return true;
    }
    if (action.kind == kWeightGrad) {
      const auto kept = rank.kept.find(key);
      if (kept == rank.kept.end()) return false;
      rank.gradients[action.stage] += weight_gradient(action.stage, kept->second.first, kept->second.second);
      rank.kept.erase(kept);
      return true;
    }
    return go_back(rank, action, key);
  }

  bool go_back(Rank& rank, const Action& action, const Key& key) const {
    const Value* input = find(rank.inputs, action.stage, action.microbatch);
    const Value* output = find(rank.outputs, action.stage, action.microbatch);
    if (input == nullptr || output == nullptr) return false;
    if (action.stage == plan_.shape.stages() - 1) rank.output_gradients[key] = loss_gradient(*output);
    const Value* after = find(rank.input_gradients, action.stage + 1, action.microbatch);
    if (after != nullptr) rank.output_gradients[key] = *after;
    const Value* gradient = find(rank.output_gradients, action.stage, action.microbatch);
    if (gradient == nullptr) return false;
    rank.input_gradients[key] = input_gradient(action.stage, *input, *gradient);
    if (action.kind == kBackward) {
      rank.gradients[action.stage] += weight_gradient(action.stage, *input, *gradient);
    } else {
      rank.kept[key] = {*input, *gradient};
    }
    rank.inputs.erase(key);  // freed: it cannot go back twice
    return true;
  }

  std::string result() const {
    for (int rank = 0; rank < plan_.shape.ranks; ++rank) {
      if (action(rank) != nullptr) return "deadlock";
    }
    for (const auto& [ranks, channel] : channels_) {
      if (!channel.empty()) return "a message that nobody receives";
    }
    std::map<int, Value> gradients;
    for (const auto& rank : ranks_) gradients.insert(rank.gradients.begin(), rank.gradients.end());
    return gradients == expected_gradients(plan_.shape) ? "" : "wrong gradients";
  }

  const PipelinePlan& plan_;
  const PipelineSends sends_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::deque<Value>> channels_;
};

}  // namespace

std::string fault_of(const PipelinePlan& plan, PipelineSends sends, uint64_t seed) {
  return PipelineMachine(plan, sends).run(seed);
}

}  // namespace lockstep::plan::reference
