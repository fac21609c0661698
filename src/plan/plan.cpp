#include "lockstep/plan/plan.h"

#include <algorithm>
#include <new>

namespace lockstep::plan {

namespace {

int rounds_of(const Phase& phase, int rank, int64_t size) {
  return size == 0 ? 0 : phase.step(rank, size - 1).round + 1;
}

/// A phase of local steps alone takes no round of its own: its steps run first in the round that follows.
bool is_local(const Phase& phase, int rank, int64_t size) {
  return size == 0 || phase.step(rank, size - 1).is_local();
}

}  // namespace

int64_t Plan::size(int rank) const {
  int64_t total = 0;
  for (const auto& phase : phases) total += phase.size(rank);
  return total;
}

Step Plan::step(int rank, int64_t index) const {
  int round_base = 0;
  for (const auto& phase : phases) {
    const int64_t size = phase.size(rank);
    if (index < size) {
      Step step = phase.step(rank, index);
      step.round += round_base;
      return step;
    }
    index -= size;
    if (!is_local(phase, rank, size)) round_base += rounds_of(phase, rank, size);
  }
  return {};
}

std::vector<Step> Plan::steps(int rank) const {
  std::vector<Step> all;
  for (Cursor cursor(*this, rank); !cursor.done(); cursor.advance()) all.push_back(cursor.step());
  return all;
}

Cursor::Cursor(const Plan& plan, int rank) : plan_(&plan), rank_(rank) {
  phase_size_ = done() ? 0 : plan.phases[0].size(rank);
  load();
}

void Cursor::enter_next_phase() {
  while (!done() && in_phase_ == phase_size_) {
    const Phase& phase = plan_->phases[phase_];
    if (!is_local(phase, rank_, phase_size_)) round_base_ += rounds_of(phase, rank_, phase_size_);
    ++phase_;
    in_phase_ = 0;
    phase_size_ = done() ? 0 : plan_->phases[phase_].size(rank_);
  }
}

bool is_reduction(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

Count part_begin(Count count, int parts, int part) {
  return count / parts * part + std::min<Count>(part, count % parts);
}

Count chunk_begin(const Plan& plan, Count count, int chunk) {
  if (plan.division == Division::kEach || plan.chunks == 1) return count * chunk;
  return part_begin(count, plan.chunks, chunk);
}

Count chunk_elements(const Plan& plan, Count count, int first, int chunks) {
  return chunk_begin(plan, count, first + chunks) - chunk_begin(plan, count, first);
}

std::string_view name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kReduce:
      return "reduce";
    case Collective::kScatter:
      return "scatter";
    case Collective::kGather:
      return "gather";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string_view name(Order order) {
  switch (order) {
    case Order::kNone:
      return "none";
    case Order::kRank:
      return "rank";
    case Order::kPosition:
      return "position";
    case Order::kTree:
      return "tree";
    case Order::kNode:
      return "node";
  }
  return "?";
}

std::string_view name(Sends sends) {
  return sends == Sends::kRendezvous ? "rendezvous" : "buffered";
}

std::string_view name(Division division) {
  return division == Division::kSplit ? "split" : "each";
}

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::kCopy:
      return "copy";
    case Kind::kCombine:
      return "combine";
    case Kind::kPost:
      return "post";
    case Kind::kWait:
      return "wait";
    case Kind::kSend:
      return "send";
    case Kind::kRecv:
      return "recv";
    case Kind::kRecvReduce:
      return "recv_reduce";
  }
  return "?";
}

}  // namespace lockstep::plan
