#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "lockstep/plan/pipeline_verify.h"

namespace lockstep::plan {

/// Runs a pipeline plan over all ranks: decides what can happen when, and tells `Visitor`:
///   compute(rank, index, action)            a computation has been run
///   Message send(rank, index, action)       a send has been run
///   receive(rank, index, action, Message)   a receive has got its message
/// What happens does not depend on the order in which ranks are looked at: each takes its own actions in
/// order, and messages between two ranks keep theirs. All messages must have a peer.
template <typename Visitor>
class PipelineWalk {
 public:
  using Message = typename Visitor::Message;

  PipelineWalk(const PipelinePlan& plan, PipelineSends sends, Visitor& visitor)
      : plan_(plan), sends_(sends), visitor_(visitor), lanes_(plan.actions.size()) {}

  /// Runs until nothing can happen any more; returns the ranks that are not done.
  std::vector<BlockedRank> run() {
    for (size_t rank = 0; rank < lanes_.size(); ++rank) wake(static_cast<int>(rank));
    while (!ready_.empty()) {
      const int rank = ready_.front();
      ready_.pop_front();
      lane(rank).queued = false;
      while (!done(rank) && step(rank)) {
      }
    }
    std::vector<BlockedRank> blocked;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const int rank = static_cast<int>(i);
      if (!done(rank)) blocked.push_back({rank, lanes_[i].next, plan_.shape.peer_of(action(rank))});
    }
    return blocked;
  }

 private:
  struct Lane {
    size_t next = 0;  ///< Of the rank's actions.
    bool queued = false;
    std::deque<Message> to_next, to_before;  ///< Underway to the rank after this one, and to the one before.
  };

  Lane& lane(int rank) { return lanes_[static_cast<size_t>(rank)]; }
  const Action& action(int rank) { return plan_.actions[static_cast<size_t>(rank)][lane(rank).next]; }
  bool done(int rank) { return lane(rank).next == plan_.actions[static_cast<size_t>(rank)].size(); }

  void wake(int rank) {
    if (!std::exchange(lane(rank).queued, true)) ready_.push_back(rank);
  }

  /// Of two ranks, the other is both after and before the one: their messages share one channel.
  std::deque<Message>& channel(int from, int to) {
    return to == (from + 1) % plan_.shape.ranks ? lane(from).to_next : lane(from).to_before;
  }

  bool waits(const Action& send) const {
    return sends_ == PipelineSends::kBlocking ||
           (sends_ == PipelineSends::kForwardAsync && send.kind == ActionKind::kSendBackward) ||
           (sends_ == PipelineSends::kBackwardAsync && send.kind == ActionKind::kSendForward);
  }

  /// Runs the next action of a rank; false if it has to wait.
  bool step(int rank) {
    const Action& next = action(rank);
    if (next.is_compute()) {
      visitor_.compute(rank, lane(rank).next++, next);
      return true;
    }
    const int peer = plan_.shape.peer_of(next);
    if (!next.is_send()) return receive(rank, peer);
    if (waits(next)) return meet(rank, peer);
    channel(rank, peer).push_back(visitor_.send(rank, lane(rank).next++, next));
    wake(peer);
    return true;
  }

  bool receive(int rank, int sender) {
    auto& underway = channel(sender, rank);
    if (underway.empty()) return meet(sender, rank);
    visitor_.receive(rank, lane(rank).next, action(rank), std::move(underway.front()));
    ++lane(rank).next;
    underway.pop_front();
    return true;
  }

  /// Runs both ends of a message if both ranks have come to it and nothing is underway before it.
  bool meet(int sender, int receiver) {
    if (done(sender) || done(receiver) || !channel(sender, receiver).empty()) return false;
    const Action& send = action(sender);
    const Action& receive = action(receiver);
    const bool both = send.is_send() && waits(send) && plan_.shape.peer_of(send) == receiver &&
                      receive.is_receive() && plan_.shape.peer_of(receive) == sender;
    if (!both) return false;
    visitor_.receive(receiver, lane(receiver).next, receive, visitor_.send(sender, lane(sender).next, send));
    ++lane(sender).next;
    ++lane(receiver).next;
    wake(sender);
    wake(receiver);
    return true;
  }

  const PipelinePlan& plan_;
  const PipelineSends sends_;
  Visitor& visitor_;
  std::vector<Lane> lanes_;
  std::deque<int> ready_;
};

}  // namespace lockstep::plan
