#pragma once

#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/step.h"

namespace lockstep::plan {

using Count = int64_t;  ///< Elements.

enum class Collective : uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kScatter,
  kGather,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBarrier,
};

/// In which order a plan adds what the ranks contribute. It is the same on all ranks: all get the same bits.
enum class Order : uint8_t {
  kNone,      ///< Nothing is added.
  kRank,      ///< ((x0 + x1) + x2) + ...: does not depend on how the data is cut.
  kPosition,  ///< Depends on the position in the buffer: a ring starts each chunk elsewhere.
  kTree,      ///< By pairs, pairs of pairs, ...
  kNode,      ///< In rank order inside a node, then in node order.
};

/// What a plan asks of a send.
enum class Sends : uint8_t {
  kRendezvous,  ///< Nothing: it completes even if a send waits for its receive.
  kBuffered,    ///< A send must complete before its receive has been posted.
};

/// How data is cut into chunks.
enum class Division : uint8_t {
  kSplit,  ///< `count` elements are split over the chunks, as evenly as possible, longer ones first.
  kEach,   ///< Each chunk has `count` elements.
};

/// A part of a plan: what each rank does, with steps and rounds counted from 0.
struct Phase {
  std::function<int64_t(int rank)> size;              ///< Steps of a rank.
  std::function<Step(int rank, int64_t index)> step;  ///< One of them.
};

/// A collective algorithm as data: for each rank, an ordered list of steps, made on demand.
///
/// A plan does not depend on the number of elements; `chunk_begin` says which elements a chunk has. It is
/// immutable, and may be read by many threads at once.
struct Plan {
  Collective collective = Collective::kAllReduce;
  std::string algorithm;
  int world = 1;
  int root = 0;
  int chunks =
      1;  ///< Of the data; slot c of a rank is for chunk c unless the plan uses it otherwise meanwhile.
  int slots = 1;  ///< Of every rank, scratch included.
  Division division = Division::kSplit;
  Order order = Order::kNone;
  Sends sends = Sends::kRendezvous;
  int ranks_per_node = 0;  ///< The topology it was made for; 0 for none.
  std::vector<Phase> phases;

  int64_t size(int rank) const;              ///< Steps of a rank.
  Step step(int rank, int64_t index) const;  ///< O(phases); use Cursor to walk.
  std::vector<Step> steps(int rank) const;   ///< All steps of a rank, as needed to run it.
};

/// Walks the steps of one rank in order.
class Cursor {
 public:
  Cursor() = default;
  Cursor(const Plan& plan, int rank);

  bool done() const { return phase_ == plan_->phases.size(); }
  const Step& step() const { return step_; }  ///< Not when done.
  int64_t index() const { return index_; }    ///< Of the step within the rank's plan.
  void advance() {
    ++in_phase_;
    ++index_;
    load();
  }

 private:
  void load() {
    if (in_phase_ == phase_size_) enter_next_phase();
    if (done()) return;
    // Made in place: copying a step right after its fields were written stalls, and this is the hottest line
    // of the house.
    ::new (static_cast<void*>(&step_)) Step(plan_->phases[phase_].step(rank_, in_phase_));
    step_.round += round_base_;
  }
  void enter_next_phase();

  const Plan* plan_ = nullptr;
  int rank_ = 0;
  size_t phase_ = 0;
  int64_t in_phase_ = 0;
  int64_t phase_size_ = 0;
  int64_t index_ = 0;
  int round_base_ = 0;
  Step step_;
};

/// First element of chunk `chunk` in a buffer of `count` elements; `plan.chunks` gives the end.
Count chunk_begin(const Plan& plan, Count count, int chunk);

/// Elements of `chunks` chunks from `first` on.
Count chunk_elements(const Plan& plan, Count count, int first, int chunks);

/// Whether it adds: all-reduce, reduce and reduce-scatter.
bool is_reduction(Collective collective);

/// First element of part `part` if `count` elements are cut as evenly as possible into `parts`, longer ones
/// first.
Count part_begin(Count count, int parts, int part);

std::string_view name(Collective collective);
std::string_view name(Order order);
std::string_view name(Sends sends);
std::string_view name(Division division);
std::string_view name(Kind kind);

}  // namespace lockstep::plan
