// Lesson 7: the primitives of a process group, written with send and recv.
//
// Six functions that all ranks call together. broadcast, reduce and barrier must be done in ceil(log2 P)
// rounds of messages; scatter and gather may let the root talk to one rank after the other. Any root, any
// number of ranks, and buffers may be empty. The lesson has a table of what each may cost.
//
// What you have: rank.rank(), rank.world_size(), rank.send(span, to), rank.recv(span, from),
//                rank.isend(span, to) -> Work, rank.irecv(span, from) -> Work, work.wait().
//                A message may be empty: rank.isend({}, to), rank.recv({}, from).
// The lesson:    lockstep lab read 7
// A hint:        lockstep lab hint 7
// Your verdict:  lockstep lab check 7
#include <algorithm>
#include <span>
#include <vector>

#include "lab/world.h"

namespace my_work {

/// Every rank ends with what `root` has.
void broadcast(lab::Rank& rank, std::span<float> data, int root) {
  // A tree: count ranks from the root, me = (rank - root + P) % P. In each round everybody who has the data
  // sends it to one who has not, so that the number of those who have it doubles.
  (void)rank;
  (void)data;
  (void)root;
}

/// `root` ends with the sum over all ranks; what the others hold afterwards does not matter.
void reduce(lab::Rank& rank, std::span<float> data, int root) {
  // The same tree, read backwards: what was a send is a receive now, and what arrives is added.
  (void)rank;
  (void)data;
  (void)root;
}

/// Rank k gets part k of the root's `all`, which is world_size times as long as `part`. `all` is empty on the
/// other ranks.
void scatter(lab::Rank& rank, std::span<const float> all, std::span<float> part, int root) {
  (void)rank;
  (void)all;
  (void)part;
  (void)root;
}

/// The root's `all` gets everybody's `part`, in rank order. `all` is empty on the other ranks.
void gather(lab::Rank& rank, std::span<const float> part, std::span<float> all, int root) {
  (void)rank;
  (void)part;
  (void)all;
  (void)root;
}

/// Everybody's `all` gets everybody's `part`, in rank order.
void all_gather(lab::Rank& rank, std::span<const float> part, std::span<float> all) {
  (void)rank;
  (void)part;
  (void)all;
}

/// Nobody leaves before the last has come.
void barrier(lab::Rank& rank) {
  // Empty messages to the rank at distance 1, then 2, then 4, ...: of which ranks does each know after a
  // round?
  (void)rank;
}

}  // namespace my_work
