#include "lockstep/plan/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/error.h"
#include "plan/meter.h"
#include "plan/structure.h"
#include "plan/walk.h"

namespace lockstep::plan {

namespace {

/// The visitor that keeps the time.
class Timing {
 public:
  struct Message {
    int from;
    double ready_s;  ///< When the sender's way out is free.
    int depth;
    int64_t bytes;
    bool is_sent;
  };

  Timing(const Plan& plan, const Network& network, Count count, int element_bytes)
      : network_(network),
        buffered_(plan.sends == Sends::kBuffered),
        meter_(plan, count, element_bytes),
        ranks_(static_cast<size_t>(plan.world)) {
    for (int rank = 0; rank < plan.world; ++rank) {
      const auto slow = network.slow.find(rank);
      if (slow != network.slow.end()) at(rank).slowness = slow->second;
    }
  }

  void local(int rank, int64_t, const Step& step) {
    Rank& self = at(rank);
    if (step.kind == Kind::kCombine) advance(self, combine_time(rank, step));
    if (step.kind == Kind::kPost) {
      self.posted_s.push_back(self.out_s);
      self.posted_depth.push_back(meter_.depth(rank));
    }
    if (step.kind == Kind::kWait && step.flag > 0) {
      const auto which = static_cast<size_t>(step.flag - 1);
      const double seen_s = at(step.peer).posted_s[which] + cost(step.peer, rank, 0);
      advance(self, std::max(0.0, seen_s - self.out_s));
      meter_.arrived(rank, at(step.peer).posted_depth[which]);
      meter_.end_round(rank);
    }
  }

  Message send(int rank, int64_t, const Step& step) {
    const int64_t bytes = meter_.bytes_of(step.chunk, step.slots.count);
    const bool is_sent = meter_.is_sent(step, bytes);
    if (is_sent) meter_.message(rank, step.peer, bytes);
    const double ready_s = at(rank).out_s;
    if (is_sent && buffered_) at(rank).out_s += cost(rank, step.peer, bytes);
    return {rank, ready_s, meter_.depth(rank), bytes, is_sent};
  }

  void receive(int rank, int64_t, const Step& step, const Message& message) {
    if (!message.is_sent) return;
    Rank& self = at(rank);
    const double begin_s = std::max(message.ready_s, self.in_s);
    const double end_s = begin_s + cost(message.from, rank, message.bytes);
    if (!buffered_) at(message.from).out_s = end_s;  // a buffered send does not wait for its receive
    self.in_s = end_s;
    if (step.kind == Kind::kRecvReduce) self.in_s += reduce_time(self, message.bytes);
    meter_.arrived(rank, message.depth);
  }

  void end_round(int rank, int) {
    Rank& self = at(rank);
    self.out_s = self.in_s = std::max(self.out_s, self.in_s);
    meter_.end_round(rank);
  }

  Simulation result() const {
    Simulation simulation{.time_s = 0, .traffic = meter_.traffic()};
    for (const auto& rank : ranks_) simulation.time_s = std::max({simulation.time_s, rank.out_s, rank.in_s});
    return simulation;
  }

 private:
  struct Rank {
    double out_s = 0;  ///< When the way out is free.
    double in_s = 0;   ///< When the way in is free.
    double slowness = 1;
    std::vector<double> posted_s = {};
    std::vector<int> posted_depth = {};
  };

  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  static void advance(Rank& rank, double seconds) {
    rank.out_s = rank.in_s = std::max(rank.out_s, rank.in_s) + seconds;
  }

  double reduce_time(const Rank& rank, int64_t bytes) const {
    return static_cast<double>(bytes) * network_.reduce_s_per_byte * rank.slowness;
  }

  double cost(int from, int to, int64_t bytes) {
    const int per_node = network_.ranks_per_node;
    const Link& link = per_node > 0 && from / per_node == to / per_node ? network_.inside : network_.between;
    double seconds = (link.latency_s + static_cast<double>(bytes) * link.s_per_byte) *
                     std::max(at(from).slowness, at(to).slowness);
    if (!network_.slow_links.empty()) {
      const auto slow = network_.slow_links.find({from, to});
      if (slow != network_.slow_links.end()) seconds *= slow->second;
    }
    return seconds;
  }

  /// Loads and stores in others' memory cost their bytes, without latency: they are pipelined.
  double combine_time(int rank, const Step& step) {
    double seconds = 0;
    for (int k = 0; k < step.width; ++k) {
      const int64_t bytes = meter_.bytes_of(step.chunk + k, 1);
      const auto move = [&](int from, int to) {
        if (from == to) return;
        meter_.one_sided(rank, from, to, bytes);
        seconds += cost(from, to, bytes) - cost(from, to, 0);
      };
      for (int i = 0; i < step.sources.count; ++i) move(step.sources.rank_of(i), rank);
      for (int i = 0; i < step.destinations.count; ++i) move(rank, step.destinations.rank_of(i));
      seconds += reduce_time(at(rank), bytes) * (step.sources.count - 1);
    }
    return seconds;
  }

  const Network& network_;
  const bool buffered_;
  Meter meter_;
  std::vector<Rank> ranks_;
};

}  // namespace

Simulation simulate(const Plan& plan, const Network& network, Count count, int element_bytes) {
  if (const auto problem = check_header(plan); !problem.empty())
    throw UsageError(fmt::format("simulate: {}", problem));
  Timing timing(plan, network, count, element_bytes);
  const auto blocked = Walk(plan, plan.sends, timing).run();
  if (!blocked.empty()) {
    throw UsageError(fmt::format("simulate: {} {} deadlocks; hint: verify() names the ranks",
                                 name(plan.collective), plan.algorithm));
  }
  return timing.result();
}

}  // namespace lockstep::plan
