#include "plan/phases.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep::plan::phases {

namespace {

using Emit = std::function<void(const Step&)>;

/// A phase of few steps (O(log P)), given as a function that emits all steps of a rank.
Phase emitted(std::function<void(int rank, const Emit&)> steps) {
  return {.size =
              [steps](int rank) {
                int64_t count = 0;
                steps(rank, [&](const Step&) { ++count; });
                return count;
              },
          .step =
              [steps](int rank, int64_t index) {
                Step found;
                steps(rank, [&](const Step& step) {
                  if (index-- == 0) found = step;
                });
                return found;
              }};
}

Step message(Kind kind, int round, int peer, const Item& item) {
  return {.kind = kind, .round = round, .peer = peer, .slots = item.slots, .chunk = item.chunk};
}

/// Step `index` of a flag exchange: the own flag first, then those of the others, each rank's next one first.
Step raise_or_wait(int world, int rank, int index, int flag) {
  if (index == 0) return {.kind = Kind::kPost};
  return {.kind = Kind::kWait, .peer = (rank + index) % world, .flag = flag};
}

/// Members counted from the root, and back.
int from_root(int member, int root, int size) {
  return (member - root + size) % size;
}
int to_member(int relative, int root, int size) {
  return (relative + root) % size;
}

/// A run of neighbouring items, from member `first` (counted from the root) on, as one or two messages: the
/// run may pass the end of the buffer.
void emit_run(const Emit& emit, Kind kind, int round, int peer, int rank, const ItemOf& item, int first,
              int count, int root, int size) {
  const int begin = to_member(first, root, size);
  const int before_end = std::min(count, size - begin);
  const auto run = [&](int owner, int owners) {
    if (owners == 0) return;
    Item joined = item(rank, owner);
    joined.slots.count *= owners;
    emit(message(kind, round, peer, joined));
  };
  run(begin, before_end);
  run(0, count - before_end);
}

/// Calls `visit(partner, is_parent, subtree)` for the edges of a binomial tree at `relative`, leaves' rounds
/// first. `subtree` counts the members below the edge, the lower end included.
template <typename Visit>
void binomial_edges(int relative, int size, const Visit& visit) {
  for (int distance = 1; distance < size; distance *= 2) {
    if ((relative & distance) != 0)
      return visit(relative - distance, true, std::min(distance, size - relative));
    if (relative + distance < size) {
      visit(relative + distance, false, std::min(distance, size - relative - distance));
    }
  }
}

enum class Travels { kOneItem, kSubtree };

/// Both directions of the tree: towards the root in the order of binomial_edges, from the root in the reverse
/// order.
Phase binomial(const GroupOf& group_of, int root, const ItemOf& item, Travels what, bool to_root,
               Kind receive) {
  return emitted([=](int rank, const Emit& emit) {
    const Group group = group_of(rank);
    if (group.size == 0) return;
    const int relative = from_root(group.member(rank), root, group.size);
    struct Edge {
      int partner;
      bool is_parent;
      int subtree;
    };
    std::vector<Edge> edges;
    binomial_edges(relative, group.size, [&](int partner, bool is_parent, int subtree) {
      edges.push_back({partner, is_parent, subtree});
    });
    if (!to_root) std::reverse(edges.begin(), edges.end());
    int round = 0;
    for (const auto& edge : edges) {
      const Kind kind = edge.is_parent == to_root ? Kind::kSend : receive;
      const int peer = group.rank(to_member(edge.partner, root, group.size));
      if (what == Travels::kOneItem) {
        emit(message(kind, round, peer, item(rank, root)));
      } else {
        const int lower_end = edge.is_parent ? relative : edge.partner;
        emit_run(emit, kind, round, peer, rank, item, lower_end, edge.subtree, root, group.size);
      }
      ++round;
    }
  });
}

/// The partner across the fold of a member, or -1: members p' .. size-1 pair with 0 .. size-p'-1.
int fold_partner(int member, int size) {
  const int core = power_of_two_below(size);
  if (member >= core) return member - core;
  return member + core < size ? member + core : -1;
}

Phase fold(const GroupOf& group_of, const ItemOf& item, bool inwards) {
  return emitted([=](int rank, const Emit& emit) {
    const Group group = group_of(rank);
    if (group.size == 0) return;
    const int member = group.member(rank);
    const int partner = fold_partner(member, group.size);
    if (partner < 0) return;
    const bool outer = member > partner;
    const Kind receive = inwards ? Kind::kRecvReduce : Kind::kRecv;
    emit(message(outer == inwards ? Kind::kSend : receive, 0, group.rank(partner), item(rank, 0)));
  });
}

/// World - 1 rounds. In round s rank r sends chunk r + first - s to its next neighbour, and receives the one
/// before that.
Phase ring(int world, Kind receive, int first) {
  return {.size = [world](int) -> int64_t { return 2 * (world - 1); },
          .step =
              [=](int rank, int64_t index) {
                const int round = static_cast<int>(index / 2);
                const bool sends = index % 2 == 0;
                int chunk = rank + first - round - (sends ? 0 : 1);
                if (chunk >= world) chunk -= world;
                if (chunk < 0) chunk += world;
                const int next = rank + 1 == world ? 0 : rank + 1;
                const int previous = rank == 0 ? world - 1 : rank - 1;
                Step step;
                step.kind = sends ? Kind::kSend : receive;
                step.round = round;
                step.peer = sends ? next : previous;
                step.slots = {chunk, 1};
                step.chunk = chunk;
                return step;
              }};
}

/// Blocks [first, first + count) as one item.
Item block_run(int rank, const ItemOf& item, int first, int count) {
  Item run = item(rank, first);
  run.slots.count *= count;
  return run;
}

}  // namespace

int power_of_two_below(int size) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
}

GroupOf whole_world(int world) {
  return [world](int) { return Group{.first = 0, .stride = 1, .size = world}; };
}

ItemOf blocks(int width) {
  return [width](int, int owner) { return Item{.slots = {owner * width, width}, .chunk = owner * width}; };
}

ItemOf everything(int chunks) {
  return [chunks](int, int) { return Item{.slots = {0, chunks}, .chunk = 0}; };
}

Phase exchange(GroupOf group_of, ItemOf outgoing, ItemOf inbox) {
  return {.size = [group_of](int rank) { return 2 * std::max<int64_t>(group_of(rank).size - 1, 0); },
          .step =
              [group_of, outgoing, inbox](int rank, int64_t index) {
                const Group group = group_of(rank);
                const int member = group.member(rank);
                const int distance = static_cast<int>(index / 2) + 1;
                const int to = (member + distance) % group.size;
                const int from = (member - distance + group.size) % group.size;
                return index % 2 == 0 ? message(Kind::kSend, 0, group.rank(to), outgoing(rank, to))
                                      : message(Kind::kRecv, 0, group.rank(from), inbox(rank, from));
              }};
}

Phase linear_gather(GroupOf group_of, int root, ItemOf outgoing, ItemOf inbox, Kind receive) {
  return {.size = [group_of, root](int rank) -> int64_t {
            const Group group = group_of(rank);
            if (group.size == 0) return 0;
            return group.member(rank) == root ? group.size - 1 : 1;
          },
          .step =
              [group_of, root, outgoing, inbox, receive](int rank, int64_t index) {
                const Group group = group_of(rank);
                const int member = group.member(rank);
                if (member != root) return message(Kind::kSend, 0, group.rank(root), outgoing(rank, member));
                const int from = static_cast<int>(index) + (index >= root ? 1 : 0);
                return message(receive, 0, group.rank(from), inbox(rank, from));
              }};
}

Phase linear_scatter(GroupOf group_of, int root, ItemOf item) {
  return {.size = [group_of, root](int rank) -> int64_t {
            const Group group = group_of(rank);
            if (group.size == 0) return 0;
            return group.member(rank) == root ? group.size - 1 : 1;
          },
          .step =
              [group_of, root, item](int rank, int64_t index) {
                const Group group = group_of(rank);
                const int member = group.member(rank);
                if (member != root) return message(Kind::kRecv, 0, group.rank(root), item(rank, member));
                const int to = static_cast<int>(index) + (index >= root ? 1 : 0);
                return message(Kind::kSend, 0, group.rank(to), item(rank, to));
              }};
}

Phase add_in_order(GroupOf group_of, ItemOf own, ItemOf inbox, std::function<bool(int rank)> takes_part) {
  return {.size = [group_of, takes_part](int rank) -> int64_t {
            return group_of(rank).size > 0 && takes_part(rank) ? 1 : 0;
          },
          .step =
              [group_of, own, inbox](int rank, int64_t) {
                const Group group = group_of(rank);
                const int member = group.member(rank);
                const Item mine = own(rank, member);
                const int first = inbox(rank, 0).slots.first;
                const int next = group.size > 1 ? inbox(rank, 1).slots.first : first;
                return Step{.kind = Kind::kCombine,
                            .chunk = mine.chunk,
                            .width = mine.slots.count,
                            .sources = {.rank = rank,
                                        .slot = first,
                                        .slot_step = next - first,
                                        .count = group.size,
                                        .except = member,
                                        .except_slot = mine.slots.first},
                            .destinations = {.rank = rank, .slot = mine.slots.first, .count = 1}};
              }};
}

// Rings have the longest plans, P - 1 rounds for each of P ranks, so that they are worked out without
// detours.

Phase ring_reduce_scatter(int world) {
  return ring(world, Kind::kRecvReduce, /*first=*/world - 1);
}

Phase ring_all_gather(int world) {
  return ring(world, Kind::kRecv, /*first=*/0);
}

Phase binomial_reduce(GroupOf group, int root, ItemOf item) {
  return binomial(group, root, item, Travels::kOneItem, /*to_root=*/true, Kind::kRecvReduce);
}

Phase binomial_broadcast(GroupOf group, int root, ItemOf item) {
  return binomial(group, root, item, Travels::kOneItem, /*to_root=*/false, Kind::kRecv);
}

Phase binomial_gather(GroupOf group, int root, ItemOf item) {
  return binomial(group, root, item, Travels::kSubtree, /*to_root=*/true, Kind::kRecv);
}

Phase binomial_scatter(GroupOf group, int root, ItemOf item) {
  return binomial(group, root, item, Travels::kSubtree, /*to_root=*/false, Kind::kRecv);
}

Phase fold_in(GroupOf group, ItemOf item) {
  return fold(group, item, /*inwards=*/true);
}
Phase fold_out(GroupOf group, ItemOf item) {
  return fold(group, item, /*inwards=*/false);
}

Phase recursive_doubling(GroupOf group_of, ItemOf item) {
  return emitted([=](int rank, const Emit& emit) {
    const Group group = group_of(rank);
    if (group.size == 0) return;
    const int member = group.member(rank);
    const int core = power_of_two_below(group.size);
    if (member >= core) return;
    int round = 0;
    for (int distance = 1; distance < core; distance *= 2, ++round) {
      const int peer = group.rank(member ^ distance);
      emit(message(Kind::kSend, round, peer, item(rank, 0)));
      emit(message(Kind::kRecvReduce, round, peer, item(rank, 0)));
    }
  });
}

Phase recursive_halving(GroupOf group_of, ItemOf item) {
  return emitted([=](int rank, const Emit& emit) {
    const Group group = group_of(rank);
    if (group.size == 0) return;
    const int member = group.member(rank);
    const int core = power_of_two_below(group.size);
    if (member >= core) return;
    int round = 0;
    for (int distance = core / 2; distance >= 1; distance /= 2, ++round) {
      const int partner = member ^ distance;
      const int peer = group.rank(partner);
      emit(message(Kind::kSend, round, peer, block_run(rank, item, partner / distance * distance, distance)));
      emit(message(Kind::kRecvReduce, round, peer,
                   block_run(rank, item, member / distance * distance, distance)));
    }
  });
}

Phase recursive_gathering(GroupOf group_of, ItemOf item) {
  return emitted([=](int rank, const Emit& emit) {
    const Group group = group_of(rank);
    if (group.size == 0) return;
    const int member = group.member(rank);
    const int core = power_of_two_below(group.size);
    if (member >= core) return;
    int round = 0;
    for (int distance = 1; distance < core; distance *= 2, ++round) {
      const int partner = member ^ distance;
      const int peer = group.rank(partner);
      emit(message(Kind::kSend, round, peer, block_run(rank, item, member / distance * distance, distance)));
      emit(message(Kind::kRecv, round, peer, block_run(rank, item, partner / distance * distance, distance)));
    }
  });
}

Phase pairwise_exchange(GroupOf group_of, ItemOf outgoing, ItemOf inbox) {
  Phase phase = exchange(group_of, outgoing, inbox);
  return {.size = phase.size, .step = [all_at_once = phase.step](int rank, int64_t index) {
            Step step = all_at_once(rank, index);
            step.round = static_cast<int>(index / 2);
            return step;
          }};
}

Phase copy_own(GroupOf group_of, ItemOf from, ItemOf to) {
  return {.size = [group_of](int rank) -> int64_t { return group_of(rank).size > 0 ? 1 : 0; },
          .step =
              [group_of, from, to](int rank, int64_t) {
                const int member = group_of(rank).member(rank);
                const Item source = from(rank, member);
                return Step{.kind = Kind::kCopy,
                            .slots = to(rank, member).slots,
                            .chunk = source.chunk,
                            .from = source.slots.first};
              }};
}

Phase flag_exchange(int world) {
  return {.size = [world](int) -> int64_t { return world; },
          .step = [world](int rank,
                          int64_t index) { return raise_or_wait(world, rank, static_cast<int>(index), 1); }};
}

Phase pull(int world, int root) {
  return {.size = [=](int rank) -> int64_t { return rank == root ? world : 3; },
          .step = [=](int rank, int64_t index) -> Step {
            if (rank == root) return raise_or_wait(world, rank, static_cast<int>(index), 1);
            if (index == 0) return {.kind = Kind::kWait, .peer = root, .flag = 1};
            if (index == 2) return {.kind = Kind::kPost};
            return {.kind = Kind::kCombine,
                    .chunk = 0,
                    .sources = {.rank = root, .slot = 0, .count = 1},
                    .destinations = {.rank = rank, .slot = 0, .count = 1}};
          }};
}

Phase between_flags(int world, std::function<int(int rank)> combines,
                    std::function<Step(int rank, int k)> combine) {
  return {.size = [=](int rank) { return 2 * int64_t{world} + combines(rank); },
          .step =
              [=](int rank, int64_t index) {
                const int i = static_cast<int>(index);
                if (i < world) return raise_or_wait(world, rank, i, 1);
                const int last = world + combines(rank);
                return i < last ? combine(rank, i - world) : raise_or_wait(world, rank, i - last, 2);
              }};
}

Phase load_all(int world, int from, int to) {
  return {.size = [](int) -> int64_t { return 1; },
          .step = [=](int rank, int64_t) -> Step {
            return {.kind = Kind::kCombine,
                    .chunk = 0,
                    .sources = {.rank = 0, .rank_step = 1, .slot = from, .count = world},
                    .destinations = {.rank = rank, .slot = to, .count = 1}};
          }};
}

Phase dissemination(GroupOf group_of) {
  return emitted([=](int rank, const Emit& emit) {
    const Group group = group_of(rank);
    if (group.size == 0) return;
    const int member = group.member(rank);
    int round = 0;
    for (int distance = 1; distance < group.size; distance *= 2, ++round) {
      emit(message(Kind::kSend, round, group.rank(member + distance), {.slots = {0, 1}, .chunk = 0}));
      emit(message(Kind::kRecvReduce, round, group.rank(member - distance), {.slots = {0, 1}, .chunk = 0}));
    }
  });
}

}  // namespace lockstep::plan::phases
