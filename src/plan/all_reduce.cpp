#include "lockstep/plan/all_reduce.h"

#include "plan/check.h"
#include "plan/phases.h"

namespace lockstep::plan {

namespace {

Plan all_reduce(const char* algorithm, int world, int chunks, int scratch, Order order) {
  check_world(algorithm, world);
  return {.collective = Collective::kAllReduce,
          .algorithm = algorithm,
          .world = world,
          .chunks = chunks,
          .slots = chunks + scratch,
          .order = order};
}

bool everyone(int) {
  return true;
}

}  // namespace

Plan naive_all_reduce(int world) {
  Plan plan = all_reduce("naive", world, 1, world, Order::kRank);
  const auto group = phases::whole_world(world);
  const phases::ItemOf inbox = [](int, int from) { return phases::Item{.slots = {1 + from, 1}, .chunk = 0}; };
  plan.phases = {
      phases::linear_gather(group, 0, phases::everything(1), inbox),
      phases::add_in_order(group, phases::everything(1), inbox, [](int rank) { return rank == 0; }),
      phases::linear_scatter(group, 0, phases::everything(1))};
  return plan;
}

Plan all_to_all_all_reduce(int world) {
  Plan plan = all_reduce("all-to-all", world, 1, world, Order::kRank);
  const auto group = phases::whole_world(world);
  const phases::ItemOf inbox = [](int, int from) { return phases::Item{.slots = {1 + from, 1}, .chunk = 0}; };
  plan.phases = {phases::exchange(group, phases::everything(1), inbox),
                 phases::add_in_order(group, phases::everything(1), inbox, everyone)};
  return plan;
}

Plan ring_all_reduce(int world) {
  Plan plan = all_reduce("ring", world, world, 0, Order::kPosition);
  plan.phases = {phases::ring_reduce_scatter(world), phases::ring_all_gather(world)};
  return plan;
}

Plan tree_all_reduce(int world) {
  Plan plan = all_reduce("tree", world, 1, 0, Order::kTree);
  const auto group = phases::whole_world(world);
  plan.phases = {phases::binomial_reduce(group, 0, phases::everything(1)),
                 phases::binomial_broadcast(group, 0, phases::everything(1))};
  return plan;
}

Plan recursive_doubling_all_reduce(int world) {
  Plan plan = all_reduce("recursive-doubling", world, 1, 0, Order::kTree);
  const auto group = phases::whole_world(world);
  plan.phases = {phases::fold_in(group, phases::everything(1)),
                 phases::recursive_doubling(group, phases::everything(1)),
                 phases::fold_out(group, phases::everything(1))};
  return plan;
}

Plan halving_doubling_all_reduce(int world) {
  const int core = world < 1 ? 1 : phases::power_of_two_below(world);
  Plan plan = all_reduce("halving-doubling", world, core, 0, Order::kTree);
  const auto group = phases::whole_world(world);
  plan.phases = {phases::fold_in(group, phases::everything(core)),
                 phases::recursive_halving(group, phases::blocks()),
                 phases::recursive_gathering(group, phases::blocks()),
                 phases::fold_out(group, phases::everything(core))};
  return plan;
}

Plan direct_all_reduce(int world) {
  Plan plan = all_reduce("direct", world, world, world, Order::kRank);
  const auto group = phases::whole_world(world);
  const phases::ItemOf inbox = [world](int rank, int from) {
    return phases::Item{.slots = {world + from, 1}, .chunk = rank};
  };
  const phases::ItemOf own = [](int rank, int) { return phases::Item{.slots = {rank, 1}, .chunk = rank}; };
  plan.phases = {phases::exchange(group, phases::blocks(), inbox),
                 phases::add_in_order(group, own, inbox, everyone),
                 phases::exchange(group, own, phases::blocks())};
  return plan;
}

Plan hierarchical_all_reduce(int world, int ranks_per_node) {
  check_world("hierarchical", world);
  check_ranks_per_node("hierarchical", ranks_per_node);
  const int per_node = ranks_per_node < world ? ranks_per_node : world;
  const int nodes = (world + per_node - 1) / per_node;
  const int owners = world - (nodes - 1) * per_node;  // local ranks that every node has: each owns a slice
  const int chunks = owners * nodes;                  // slice k is chunks [k * nodes, (k + 1) * nodes)
  Plan plan = all_reduce("hierarchical", world, chunks, (per_node > 1 ? per_node : 1) * nodes, Order::kNode);
  plan.ranks_per_node = per_node;

  const phases::GroupOf inside = [=](int rank) {
    const int node = rank / per_node;
    return phases::Group{
        .first = node * per_node, .stride = 1, .size = node == nodes - 1 ? owners : per_node};
  };
  const phases::GroupOf between = [=](int rank) {
    const int place = rank % per_node;
    return phases::Group{.first = place, .stride = per_node, .size = place < owners ? nodes : 0};
  };
  const auto place_of = [=](int rank) { return rank % per_node; };
  const auto owns = [=](int rank) { return place_of(rank) < owners; };
  const phases::ItemOf slice = [=](int, int place) {
    return phases::Item{.slots = {place * nodes, nodes}, .chunk = place * nodes};
  };
  const phases::Item nothing = {.slots = {0, 0}, .chunk = 0};

  const phases::ItemOf slice_of_owner = [=](int rank, int place) {
    return place < owners ? slice(rank, place) : nothing;
  };
  const phases::ItemOf own_slice = [=](int rank, int) {
    return owns(rank) ? slice(rank, place_of(rank)) : nothing;
  };
  const phases::ItemOf slice_inbox = [=](int rank, int from) {
    return owns(rank) ? phases::Item{.slots = {chunks + from * nodes, nodes}, .chunk = place_of(rank) * nodes}
                      : nothing;
  };

  const phases::ItemOf chunk_of_node = [=](int rank, int node) {
    return phases::Item{.slots = {place_of(rank) * nodes + node, 1}, .chunk = place_of(rank) * nodes + node};
  };
  const phases::ItemOf own_chunk = [=](int rank, int) { return chunk_of_node(rank, rank / per_node); };
  const phases::ItemOf chunk_inbox = [=](int rank, int from) {
    return phases::Item{.slots = {chunks + from, 1}, .chunk = own_chunk(rank, 0).chunk};
  };

  plan.phases = {phases::exchange(inside, slice_of_owner, slice_inbox),
                 phases::add_in_order(inside, own_slice, slice_inbox, owns),
                 phases::exchange(between, chunk_of_node, chunk_inbox),
                 phases::add_in_order(between, own_chunk, chunk_inbox, everyone),
                 phases::exchange(between, own_chunk, chunk_of_node),
                 phases::exchange(inside, own_slice, slice_of_owner)};
  return plan;
}

Plan push_all_reduce(int world) {
  Plan plan = all_reduce("push", world, world, 0, Order::kRank);
  const auto once = [](int) { return 1; };
  plan.phases = {phases::between_flags(world, once, [world](int rank, int) -> Step {
    const Places slot_of_all = {.rank = 0, .rank_step = 1, .slot = rank, .count = world};
    return {.kind = Kind::kCombine, .chunk = rank, .sources = slot_of_all, .destinations = slot_of_all};
  })};
  return plan;
}

Plan one_shot_all_reduce(int world) {
  Plan plan = all_reduce("one-shot", world, 1, 1, Order::kRank);
  const phases::ItemOf copy = [](int, int) { return phases::Item{.slots = {1, 1}, .chunk = 0}; };
  plan.phases = {phases::copy_own(phases::whole_world(world), phases::everything(1), copy),
                 phases::flag_exchange(world), phases::load_all(world, 1, 0)};
  return plan;
}

}  // namespace lockstep::plan
