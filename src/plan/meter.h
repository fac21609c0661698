#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/plan/verify.h"
#include "plan/links.h"

namespace lockstep::plan {

/// Counts what a plan moves while it is walked, and the longest chain of messages.
class Meter {
 public:
  Meter(const Plan& plan, Count count, int element_bytes)
      : plan_(plan),
        count_(count),
        element_bytes_(element_bytes),
        ranks_(static_cast<size_t>(plan.world)),
        links_(plan.world) {}

  /// Bytes of `chunks` chunks from `first` on. A barrier's messages are empty.
  int64_t bytes_of(int first, int chunks) const {
    if (plan_.collective == Collective::kBarrier) return 0;
    return chunk_elements(plan_, count_, first, chunks) * element_bytes_;
  }

  /// Whether a message is sent at all: one of no bytes is not, unless it is a barrier's.
  bool is_sent(const Step& step, int64_t bytes) const {
    return bytes > 0 || (plan_.collective == Collective::kBarrier && step.slots.count > 0);
  }

  void message(int from, int to, int64_t bytes) {
    at(from).sent_bytes += bytes;
    at(from).messages += 1;
    at(to).received_bytes += bytes;
    links_.add(from, to, bytes);
  }

  /// Rank `by` loads from, or stores to, memory of others: bytes go from one to the other.
  void one_sided(int by, int from, int to, int64_t bytes) {
    at(by).sent_bytes += bytes;
    links_.add(from, to, bytes);
  }

  int depth(int rank) const { return ranks_[static_cast<size_t>(rank)].depth; }
  /// Something that a chain of `depth` messages led to has arrived; it counts from the next round on.
  void arrived(int rank, int depth) { at(rank).next_depth = std::max(at(rank).next_depth, depth + 1); }
  void end_round(int rank) { at(rank).depth = std::max(at(rank).depth, at(rank).next_depth); }

  Traffic traffic() const {
    Traffic traffic;
    for (const auto& rank : ranks_) {
      traffic.bytes_per_rank = std::max(traffic.bytes_per_rank, rank.sent_bytes);
      traffic.bytes_at_rank = std::max(traffic.bytes_at_rank, rank.sent_bytes + rank.received_bytes);
      traffic.total_bytes += rank.sent_bytes;
      traffic.messages_per_rank = std::max(traffic.messages_per_rank, rank.messages);
      traffic.total_messages += rank.messages;
      traffic.rounds = std::max(traffic.rounds, rank.depth);
    }
    traffic.bytes_per_link = links_.most();
    return traffic;
  }

 private:
  struct Rank {
    int depth = 0;       ///< Messages in the longest chain that led here.
    int next_depth = 0;  ///< After the round that is under way.
    int64_t sent_bytes = 0, received_bytes = 0, messages = 0;
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  const Plan& plan_;
  const Count count_;
  const int element_bytes_;
  std::vector<Rank> ranks_;
  Links links_;
};

}  // namespace lockstep::plan
