#pragma once

#include <functional>

#include "lockstep/plan/plan.h"

namespace lockstep::plan::phases {

// The parts that plans are put together from. Each works inside groups of ranks, so that the same part serves
// a flat world, the ranks of one node, and the ranks of equal place on all nodes.

/// Evenly spaced ranks; member k is rank `first + k * stride`. Size 0: the rank takes no part.
struct Group {
  int first = 0;
  int stride = 1;
  int size = 0;

  int rank(int member) const { return first + ((member % size + size) % size) * stride; }
  int member(int rank) const { return (rank - first) / stride; }
};

/// The group that a rank works in.
using GroupOf = std::function<Group(int rank)>;
GroupOf whole_world(int world);

/// What one member has to do with another: slots, and the chunk that the first of them holds.
struct Item {
  Slots slots;
  int chunk;
};
/// The item of member `owner`, in the buffer of `rank`.
using ItemOf = std::function<Item(int rank, int owner)>;

/// Item k is `width` slots from `k * width` on, and the chunks of the same numbers.
ItemOf blocks(int width = 1);
/// All members have one item: all chunks, where they belong.
ItemOf everything(int chunks);

/// Everybody sends item k to member k, and receives from member k into inbox k; all in one round. Message k
/// goes to the k-th next member, so that no two senders meet at one receiver at once.
Phase exchange(GroupOf group, ItemOf outgoing, ItemOf inbox);

/// The same in size - 1 rounds, one partner at a time.
Phase pairwise_exchange(GroupOf group, ItemOf outgoing, ItemOf inbox);

/// Copies a member's own item. Local.
Phase copy_own(GroupOf group, ItemOf from, ItemOf to);

/// Everybody sends its item to member `root`, which receives it into inbox k; one round.
Phase linear_gather(GroupOf group, int root, ItemOf outgoing, ItemOf inbox, Kind receive = Kind::kRecv);

/// Member `root` sends item k to member k, which receives it into the same slots; one round.
Phase linear_scatter(GroupOf group, int root, ItemOf item);

/// Adds the items of all members in member order: member k's is inbox k, its own is `own`. Local. Only where
/// `takes_part`.
Phase add_in_order(GroupOf group, ItemOf own, ItemOf inbox, std::function<bool(int rank)> takes_part);

/// world - 1 rounds over the whole world. In round s rank r sends chunk r - s - 1 and adds what it receives
/// to chunk r - s - 2; at the end chunk r is complete at rank r. (Patarasuk and Yuan, 2009.)
Phase ring_reduce_scatter(int world);

/// world - 1 rounds. In round s rank r passes on chunk r - s and receives chunk r - s - 1; chunk r is rank
/// r's at first.
Phase ring_all_gather(int world);

/// ceil(log2 size) rounds, towards member `root`: in round k members whose number (counted from the root) has
/// bit k lowest send all they have and are done.
Phase binomial_reduce(GroupOf group, int root, ItemOf item);
/// The same the other way round, from the root.
Phase binomial_broadcast(GroupOf group, int root, ItemOf item);
/// The same tree; what travels is the items of the whole subtree.
Phase binomial_gather(GroupOf group, int root, ItemOf item);
Phase binomial_scatter(GroupOf group, int root, ItemOf item);

/// For sizes that are no power of two: the members beyond the largest power of two below give what they have
/// to their partner (one round), and get the result back at the end (one round).
Phase fold_in(GroupOf group, ItemOf item);
Phase fold_out(GroupOf group, ItemOf item);

/// Among the first 2^k members, in k rounds: member m exchanges everything with m xor 2^i, and adds.
Phase recursive_doubling(GroupOf group, ItemOf item);

/// Among the first 2^k members, in k rounds: partners at distance 2^(k-1), ..., 1 exchange halves of what
/// each still holds and add; member m ends with block m of 2^k. `item(rank, b)` is block b.
Phase recursive_halving(GroupOf group, ItemOf item);
/// The way back: blocks are gathered at distances 1, 2, ..., 2^(k-1).
Phase recursive_gathering(GroupOf group, ItemOf item);

/// ceil(log2 size) rounds: in round k member m sends to m + 2^k and hears from m - 2^k. (Hensgen, Finkel and
/// Manber, 1988.)
Phase dissemination(GroupOf group);

/// One-sided, on shared memory: raises the flag, then waits until everybody has raised theirs.
Phase flag_exchange(int world);

/// One-sided: adds slot `from` of all ranks in rank order and stores the sum into the rank's own slot `to`.
Phase load_all(int world, int from, int to);

/// One-sided: everybody loads slot 0 of the root when that has raised its flag, then raises its own, for
/// which the root waits.
Phase pull(int world, int root);

/// One-sided: flags, so that everybody's data is ready; then a rank's own combines; then flags again, so that
/// nobody goes on while another still loads from it or stores to it.
Phase between_flags(int world, std::function<int(int rank)> combines,
                    std::function<Step(int rank, int k)> combine);

/// The largest power of two that is at most `size`, which is at least 1.
int power_of_two_below(int size);

}  // namespace lockstep::plan::phases
