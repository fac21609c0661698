#pragma once

#include <cstdint>

namespace lockstep::plan {

/// What a step does. Slots are the numbered places of a rank's working buffer, each as large as one chunk.
enum class Kind : uint8_t {
  kCopy,     ///< Copies slots within the rank.
  kCombine,  ///< Loads all sources, adds them in order, stores the sum to all destinations, of any ranks.
  kPost,  ///< Raises this rank's flag by one: what it did so far may be seen by whoever waits for the flag.
  kWait,  ///< Waits until a peer's flag has been raised so often.
  kSend,  ///< Sends slots to a peer.
  kRecv,  ///< Receives slots from a peer, in the order in which they were sent.
  kRecvReduce,  ///< Receives slots from a peer and adds them to its own; the lower rank's are the left
                ///< operand.
};

/// `count` slots from `first` on.
struct Slots {
  int first = 0;
  int count = 0;
  bool operator==(const Slots&) const = default;
};

/// Evenly spaced places: the k-th is slot `slot + k * slot_step` of rank `rank + k * rank_step`, but for k ==
/// `except`, which is slot `except_slot` of the rank itself.
struct Places {
  int rank = 0;
  int rank_step = 0;
  int slot = 0;
  int slot_step = 0;
  int count = 0;
  int except = -1;
  int except_slot = 0;
  bool operator==(const Places&) const = default;

  int rank_of(int k) const { return rank + k * rank_step; }
  int slot_of(int k) const { return k == except ? except_slot : slot + k * slot_step; }
};

/// One line of a plan.
///
/// A rank's steps are grouped into rounds. A round first runs its local steps (copy, combine, post, wait) in
/// order; then its sends and its receives, each kind in order among themselves, both at once; it is over when
/// all are done. Sends read what the slots held before the round received anything, so that an exchange can
/// add in place; a plain receive must not touch what the round still sends.
struct Step {
  Kind kind = Kind::kCopy;
  int round = 0;     ///< Counted by each rank from 0.
  int peer = -1;     ///< Send: to whom. Receive: from whom. Wait: whose flag.
  Slots slots = {};  ///< Send: read. Receive: written or added to. Copy: written.
  int chunk =
      0;  ///< The chunk that the first slot holds; the next slot holds the next chunk. Decides the bytes.
  int from = -1;  ///< Copy: the first slot read.
  int flag = 0;   ///< Wait: how often the peer's flag must have been raised.
  int width = 1;  ///< Combine: slots at each place.
  Places sources = {};
  Places destinations = {};
  bool operator==(const Step&) const = default;

  bool is_send() const { return kind == Kind::kSend; }
  bool is_receive() const { return kind == Kind::kRecv || kind == Kind::kRecvReduce; }
  bool is_local() const { return !is_send() && !is_receive(); }
};

}  // namespace lockstep::plan
