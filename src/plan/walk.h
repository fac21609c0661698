#pragma once

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

/// What keeps a rank from going on.
struct Blocked {
  int rank = 0;
  int64_t index = 0;  ///< Of its step.
  Step step;
};

/// Runs a plan over all ranks without moving data: decides what can happen when, and tells `Visitor`:
///   local(rank, index, step)              a copy, combine, post or wait has been run
///   Message send(rank, index, step)       a send has been run
///   receive(rank, index, step, Message)   a receive has got its message
///   end_round(rank, round)                all of a round is done
/// One cursor for sends and one for receives per rank: O(world) memory, whatever the length of the plan. What
/// happens does not depend on the order in which ranks are looked at: each takes its own steps in order, and
/// messages between two ranks keep theirs.
template <typename Visitor>
class Walk {
 public:
  using Message = typename Visitor::Message;

  Walk(const Plan& plan, Sends sends, Visitor& visitor)
      : plan_(plan), buffered_(sends == Sends::kBuffered), visitor_(visitor) {
    lanes_.reserve(static_cast<size_t>(plan.world));
    for (int rank = 0; rank < plan.world; ++rank) {
      const Cursor start(plan, rank);
      lanes_.push_back({.out = start, .in = start});
      ready_.push_back(rank);
    }
  }

  /// Runs until nothing can happen any more; returns the ranks that are not done, with the steps that they
  /// are stuck in.
  std::vector<Blocked> run() {
    while (!ready_.empty()) {
      const int rank = ready_.front();
      ready_.pop_front();
      lane(rank).queued = false;
      go_on(rank);
    }
    std::vector<Blocked> blocked;
    for (int rank = 0; rank < plan_.world; ++rank) add_blocked(rank, blocked);
    return blocked;
  }

  /// After run(): the first buffered message that nobody received, or null.
  const Message* unreceived() const {
    const auto first = std::min_element(in_flight_.begin(), in_flight_.end(),
                                        [](const auto& a, const auto& b) { return a.first < b.first; });
    return first == in_flight_.end() ? nullptr : &first->second.front();
  }

 private:
  struct Lane {
    Cursor
        out;    ///< At the next send of the round, or behind it; at a local step before the round's messages.
    Cursor in;  ///< At the next receive of the round, or behind it.
    int round = 0;
    int posts = 0;
    bool in_messages = false;  ///< The round's local steps are done.
    bool queued = true;
    std::vector<int> waiters = {};  ///< Ranks that wait for this one's flag.
  };

  Lane& lane(int rank) { return lanes_[static_cast<size_t>(rank)]; }

  void wake(int rank) {
    if (std::exchange(lane(rank).queued, true)) return;
    ready_.push_back(rank);
  }

  static bool in_round(const Cursor& cursor, int round) {
    return !cursor.done() && cursor.step().round == round;
  }

  /// Moves to the next send (receive) of the round, or to its end.
  static void skip_to_send(Lane& lane) {
    while (in_round(lane.out, lane.round) && !lane.out.step().is_send()) lane.out.advance();
  }
  static void skip_to_receive(Lane& lane) {
    while (in_round(lane.in, lane.round) && !lane.in.step().is_receive()) lane.in.advance();
  }

  void go_on(int rank) {
    Lane& lane = this->lane(rank);
    for (;;) {
      if (!lane.in_messages && !run_local(rank, lane)) return;
      bool moved = false;
      while (in_round(lane.out, lane.round) && run_send(rank, lane)) moved = true;
      while (in_round(lane.in, lane.round) && run_receive(rank, lane)) moved = true;
      const bool round_done = !in_round(lane.out, lane.round) && !in_round(lane.in, lane.round);
      if (round_done) {
        if (lane.out.done()) return finish(rank, lane);
        visitor_.end_round(rank, lane.round);
        lane.round = lane.out.step().round;
        lane.in_messages = false;
      } else if (!moved) {
        return;
      }
    }
  }

  void finish(int rank, Lane& lane) {
    if (lane.in_messages) visitor_.end_round(rank, lane.round);
    lane.in_messages = true;
    lane.round = -1;  // matches no step: a second visit finds nothing to do
  }

  /// Runs the local steps that open a round; false if a wait is not over.
  bool run_local(int rank, Lane& lane) {
    if (lane.out.done() && lane.round < 0) return false;
    while (in_round(lane.out, lane.round) && lane.out.step().is_local()) {
      const Step& step = lane.out.step();
      if (step.kind == Kind::kWait && this->lane(step.peer).posts < step.flag) {
        this->lane(step.peer).waiters.push_back(rank);
        return false;
      }
      visitor_.local(rank, lane.out.index(), step);
      if (step.kind == Kind::kPost) {
        ++lane.posts;
        for (const int waiter : std::exchange(lane.waiters, {})) wake(waiter);
      }
      lane.out.advance();
    }
    lane.in = lane.out;
    lane.in_messages = true;
    skip_to_send(lane);
    skip_to_receive(lane);
    return true;
  }

  bool run_send(int rank, Lane& lane) {
    const Step& step = lane.out.step();
    if (buffered_) {
      in_flight_[channel(rank, step.peer)].push_back(visitor_.send(rank, lane.out.index(), step));
      wake(step.peer);
    } else {
      Lane& peer = this->lane(step.peer);
      const bool meets = step.peer != rank && peer.in_messages && in_round(peer.in, peer.round) &&
                         peer.in.step().is_receive() && peer.in.step().peer == rank;
      if (!meets) return false;
      visitor_.receive(step.peer, peer.in.index(), peer.in.step(),
                       visitor_.send(rank, lane.out.index(), step));
      peer.in.advance();
      skip_to_receive(peer);
      wake(step.peer);
    }
    lane.out.advance();
    skip_to_send(lane);
    return true;
  }

  bool run_receive(int rank, Lane& lane) {
    const Step& step = lane.in.step();
    if (!buffered_) {  // the sender moves both
      Lane& peer = this->lane(step.peer);
      const bool meets = step.peer != rank && peer.in_messages && in_round(peer.out, peer.round) &&
                         peer.out.step().is_send() && peer.out.step().peer == rank;
      if (meets) wake(step.peer);
      return false;
    }
    const auto found = in_flight_.find(channel(step.peer, rank));
    if (found == in_flight_.end()) return false;
    visitor_.receive(rank, lane.in.index(), step, std::move(found->second.front()));
    found->second.pop_front();
    if (found->second.empty()) in_flight_.erase(found);
    lane.in.advance();
    skip_to_receive(lane);
    return true;
  }

  int64_t channel(int from, int to) const { return static_cast<int64_t>(from) * plan_.world + to; }

  void add_blocked(int rank, std::vector<Blocked>& blocked) {
    const Lane& lane = this->lane(rank);
    if (in_round(lane.out, lane.round)) blocked.push_back({rank, lane.out.index(), lane.out.step()});
    if (lane.in_messages && in_round(lane.in, lane.round)) {
      blocked.push_back({rank, lane.in.index(), lane.in.step()});
    }
  }

  const Plan& plan_;
  const bool buffered_;
  Visitor& visitor_;
  std::vector<Lane> lanes_;
  std::deque<int> ready_;
  std::unordered_map<int64_t, std::deque<Message>> in_flight_;
};

}  // namespace lockstep::plan
