#include "lockstep/plan/collectives.h"

#include "plan/check.h"
#include "plan/phases.h"

namespace lockstep::plan {

namespace {

/// The common part: `chunks` of the data and as many slots, plus scratch.
Plan plan_of(Collective collective, const char* algorithm, int world, int root, int chunks, int slots,
             Division division, Order order) {
  check_world(algorithm, world);
  check_root(algorithm, root, world);
  return {.collective = collective,
          .algorithm = algorithm,
          .world = world,
          .root = root,
          .chunks = chunks,
          .slots = slots,
          .division = division,
          .order = order};
}

Plan broadcast(const char* algorithm, int world, int root, int chunks) {
  return plan_of(Collective::kBroadcast, algorithm, world, root, chunks, chunks, Division::kSplit,
                 Order::kNone);
}

/// Scatter, gather and all-gather: rank k's part is chunk k.
Plan by_rank(Collective collective, const char* algorithm, int world, int root) {
  return plan_of(collective, algorithm, world, root, world, world, Division::kEach, Order::kNone);
}

Plan all_to_all(const char* algorithm, int world) {
  // Slot d is for rank d; slot world + s is from rank s. The piece from s to d is chunk s * world + d.
  return plan_of(Collective::kAllToAll, algorithm, world, 0, world * world, 2 * world, Division::kEach,
                 Order::kNone);
}

Step combine(int chunk, const Places& sources, const Places& destinations) {
  return {.kind = Kind::kCombine, .chunk = chunk, .sources = sources, .destinations = destinations};
}

Places slot_of_all(int slot, int world) {
  return {.rank = 0, .rank_step = 1, .slot = slot, .count = world};
}

int once(int) {
  return 1;
}

phases::ItemOf outgoing_of(int world) {
  return [world](int rank, int to) { return phases::Item{.slots = {to, 1}, .chunk = rank * world + to}; };
}

phases::ItemOf incoming_of(int world) {
  return [world](int rank, int from) {
    return phases::Item{.slots = {world + from, 1}, .chunk = from * world + rank};
  };
}

}  // namespace

Plan linear_broadcast(int world, int root) {
  Plan plan = broadcast("linear", world, root, 1);
  plan.phases = {phases::linear_scatter(phases::whole_world(world), root, phases::everything(1))};
  return plan;
}

Plan binomial_broadcast(int world, int root) {
  Plan plan = broadcast("binomial", world, root, 1);
  plan.phases = {phases::binomial_broadcast(phases::whole_world(world), root, phases::everything(1))};
  return plan;
}

Plan scatter_all_gather_broadcast(int world, int root) {
  Plan plan = broadcast("scatter-all-gather", world, root, world);
  const auto group = phases::whole_world(world);
  plan.phases = {phases::binomial_scatter(group, root, phases::blocks()), phases::ring_all_gather(world)};
  return plan;
}

Plan pull_broadcast(int world, int root) {
  Plan plan = broadcast("pull", world, root, 1);
  plan.phases = {phases::pull(world, root)};
  return plan;
}

Plan linear_reduce(int world, int root) {
  Plan plan =
      plan_of(Collective::kReduce, "linear", world, root, 1, 1 + world, Division::kSplit, Order::kRank);
  const auto group = phases::whole_world(world);
  const phases::ItemOf inbox = [](int, int from) { return phases::Item{.slots = {1 + from, 1}, .chunk = 0}; };
  plan.phases = {
      phases::linear_gather(group, root, phases::everything(1), inbox),
      phases::add_in_order(group, phases::everything(1), inbox, [root](int rank) { return rank == root; })};
  return plan;
}

Plan binomial_reduce(int world, int root) {
  Plan plan = plan_of(Collective::kReduce, "binomial", world, root, 1, 1, Division::kSplit, Order::kTree);
  plan.phases = {phases::binomial_reduce(phases::whole_world(world), root, phases::everything(1))};
  return plan;
}

Plan push_reduce(int world, int root) {
  Plan plan = plan_of(Collective::kReduce, "push", world, root, world, world, Division::kSplit, Order::kRank);
  plan.phases = {phases::between_flags(world, once, [world, root](int rank, int) {
    return combine(rank, slot_of_all(rank, world), {.rank = root, .slot = rank, .count = 1});
  })};
  return plan;
}

Plan linear_scatter(int world, int root) {
  Plan plan = by_rank(Collective::kScatter, "linear", world, root);
  plan.phases = {phases::linear_scatter(phases::whole_world(world), root, phases::blocks())};
  return plan;
}

Plan binomial_scatter(int world, int root) {
  Plan plan = by_rank(Collective::kScatter, "binomial", world, root);
  plan.phases = {phases::binomial_scatter(phases::whole_world(world), root, phases::blocks())};
  return plan;
}

Plan linear_gather(int world, int root) {
  Plan plan = by_rank(Collective::kGather, "linear", world, root);
  plan.phases = {phases::linear_gather(phases::whole_world(world), root, phases::blocks(), phases::blocks())};
  return plan;
}

Plan binomial_gather(int world, int root) {
  Plan plan = by_rank(Collective::kGather, "binomial", world, root);
  plan.phases = {phases::binomial_gather(phases::whole_world(world), root, phases::blocks())};
  return plan;
}

Plan linear_all_gather(int world) {
  Plan plan = by_rank(Collective::kAllGather, "linear", world, 0);
  const phases::ItemOf own = [](int rank, int) { return phases::Item{.slots = {rank, 1}, .chunk = rank}; };
  plan.phases = {phases::exchange(phases::whole_world(world), own, phases::blocks())};
  return plan;
}

Plan ring_all_gather(int world) {
  Plan plan = by_rank(Collective::kAllGather, "ring", world, 0);
  plan.phases = {phases::ring_all_gather(world)};
  return plan;
}

Plan push_all_gather(int world) {
  Plan plan = by_rank(Collective::kAllGather, "push", world, 0);
  // To the ranks below and to those above: a rank's own part is where it belongs.
  const auto sides = [world](int rank) { return (rank > 0 ? 1 : 0) + (rank + 1 < world ? 1 : 0); };
  plan.phases = {phases::between_flags(world, sides, [world](int rank, int k) {
    const bool below = rank > 0 && k == 0;
    const Places others = {
        .rank = below ? 0 : rank + 1, .rank_step = 1, .slot = rank, .count = below ? rank : world - rank - 1};
    return combine(rank, {.rank = rank, .slot = rank, .count = 1}, others);
  })};
  return plan;
}

Plan linear_reduce_scatter(int world) {
  Plan plan = plan_of(Collective::kReduceScatter, "linear", world, 0, world, 2 * world, Division::kSplit,
                      Order::kRank);
  const auto group = phases::whole_world(world);
  const phases::ItemOf inbox = [world](int rank, int from) {
    return phases::Item{.slots = {world + from, 1}, .chunk = rank};
  };
  const phases::ItemOf own = [](int rank, int) { return phases::Item{.slots = {rank, 1}, .chunk = rank}; };
  plan.phases = {phases::exchange(group, phases::blocks(), inbox),
                 phases::add_in_order(group, own, inbox, [](int) { return true; })};
  return plan;
}

Plan ring_reduce_scatter(int world) {
  Plan plan =
      plan_of(Collective::kReduceScatter, "ring", world, 0, world, world, Division::kSplit, Order::kPosition);
  plan.phases = {phases::ring_reduce_scatter(world)};
  return plan;
}

Plan pull_reduce_scatter(int world) {
  Plan plan =
      plan_of(Collective::kReduceScatter, "pull", world, 0, world, world, Division::kSplit, Order::kRank);
  plan.phases = {phases::between_flags(world, once, [world](int rank, int) {
    return combine(rank, slot_of_all(rank, world), {.rank = rank, .slot = rank, .count = 1});
  })};
  return plan;
}

Plan linear_all_to_all(int world) {
  Plan plan = all_to_all("linear", world);
  const auto group = phases::whole_world(world);
  plan.phases = {phases::copy_own(group, outgoing_of(world), incoming_of(world)),
                 phases::exchange(group, outgoing_of(world), incoming_of(world))};
  return plan;
}

Plan pairwise_all_to_all(int world) {
  Plan plan = all_to_all("pairwise", world);
  const auto group = phases::whole_world(world);
  plan.phases = {phases::copy_own(group, outgoing_of(world), incoming_of(world)),
                 phases::pairwise_exchange(group, outgoing_of(world), incoming_of(world))};
  return plan;
}

Plan pull_all_to_all(int world) {
  Plan plan = all_to_all("pull", world);
  const auto each = [world](int) { return world; };
  plan.phases = {phases::between_flags(world, each, [world](int rank, int k) {
    // Its own piece first, then those of the next ranks: no two load from one rank at once.
    const int from = (rank + k) % world;
    return combine(from * world + rank, {.rank = from, .slot = rank, .count = 1},
                   {.rank = rank, .slot = world + from, .count = 1});
  })};
  return plan;
}

Plan linear_barrier(int world) {
  Plan plan = plan_of(Collective::kBarrier, "linear", world, 0, 1, 1, Division::kEach, Order::kNone);
  const auto group = phases::whole_world(world);
  plan.phases = {
      phases::linear_gather(group, 0, phases::everything(1), phases::everything(1), Kind::kRecvReduce),
      phases::linear_scatter(group, 0, phases::everything(1))};
  return plan;
}

Plan flag_barrier(int world) {
  Plan plan = plan_of(Collective::kBarrier, "flags", world, 0, 1, 1, Division::kEach, Order::kNone);
  plan.phases = {phases::flag_exchange(world)};
  return plan;
}

Plan dissemination_barrier(int world) {
  Plan plan = plan_of(Collective::kBarrier, "dissemination", world, 0, 1, 1, Division::kEach, Order::kNone);
  plan.phases = {phases::dissemination(phases::whole_world(world))};
  return plan;
}

}  // namespace lockstep::plan
