#pragma once

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

// All-reduce: every rank ends with the sum over all ranks, the same bits everywhere. S bytes, P ranks;
// "sends" is per rank.

/// Everybody sends all to rank 0, which adds in rank order and sends the result to all. 2 rounds; 2(P-1)S
/// bytes through the root's link, S through any other.
Plan naive_all_reduce(int world);

/// Everybody sends all to everybody, and each adds in rank order. 1 round; (P-1)S bytes sent by each rank.
Plan all_to_all_all_reduce(int world);

/// Chunked ring: reduce-scatter, then all-gather. 2(P-1) rounds; 2(P-1)/P S bytes sent by each rank, the
/// least possible. In round s rank r sends chunk r-s-1; after P-1 rounds it holds chunk r complete, and P-1
/// more pass the complete chunks round. (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
/// clusters of workstations", 2009.)
Plan ring_all_reduce(int world);

/// Binomial tree to rank 0 and back. 2 ceil(log2 P) rounds; at most S bytes a round.
Plan tree_all_reduce(int world);

/// Partners at distance 1, 2, 4, ... exchange everything. log2 P rounds of S bytes; for other worlds the
/// ranks beyond the largest power of two join before and get the result after: 2 rounds more.
Plan recursive_doubling_all_reduce(int world);

/// Recursive halving, then recursive doubling of what has been reduced. 2 log2 P rounds; 2(P-1)/P S bytes
/// sent by each rank. Other worlds as above. (Rabenseifner, "Optimization of collective reduction
/// operations", 2004.)
Plan halving_doubling_all_reduce(int world);

/// Owner r of chunk r receives it from everybody, adds in rank order, and sends the sum to everybody. 2
/// rounds; a ring's bytes; P-1 messages a round.
Plan direct_all_reduce(int world);

/// Two levels: inside a node, local rank k adds slice k in rank order; between nodes, local ranks k add their
/// slices in node order; then the slices are gathered inside the node. Only S / ranks_per_node bytes of a
/// rank cross nodes, twice. The last node may have fewer ranks; then only as many local ranks as it has own
/// slices.
Plan hierarchical_all_reduce(int world, int ranks_per_node);

/// One-sided, for memory that all ranks can load and store: rank r adds slice r of all ranks' buffers in rank
/// order and stores it into all of them. Two flag exchanges; 2S bytes loaded and stored by each rank, the
/// least for private results.
Plan push_all_reduce(int world);

/// One-sided, for data of a few cache lines: everybody shows a copy of its data and adds all of them in rank
/// order. One flag exchange; (P-1)S bytes loaded by each rank. The copy is scratch, which the engine keeps
/// until the next call but one, so that nobody has to wait for those that still load it.
Plan one_shot_all_reduce(int world);

}  // namespace lockstep::plan
