#include <fmt/format.h>

#include "lockstep/error.h"
#include "lockstep/plan/all_reduce.h"
#include "lockstep/plan/collectives.h"

namespace lockstep::plan {

const std::vector<Algorithm>& algorithms() {
  using enum Collective;
  static const std::vector<Algorithm> all = {
      {kAllReduce, "naive", "everybody to rank 0, the sum to everybody",
       [](const Shape& s) { return naive_all_reduce(s.world); }},
      {kAllReduce, "all-to-all", "everybody to everybody",
       [](const Shape& s) { return all_to_all_all_reduce(s.world); }},
      {kAllReduce, "ring", "chunks round a ring, twice",
       [](const Shape& s) { return ring_all_reduce(s.world); }},
      {kAllReduce, "tree", "binomial tree, up and down",
       [](const Shape& s) { return tree_all_reduce(s.world); }},
      {kAllReduce, "recursive-doubling", "everything with partners at distance 1, 2, 4, ...",
       [](const Shape& s) { return recursive_doubling_all_reduce(s.world); }},
      {kAllReduce, "halving-doubling", "halves out, sums back",
       [](const Shape& s) { return halving_doubling_all_reduce(s.world); }},
      {kAllReduce, "direct", "each chunk to its owner, the sum to everybody",
       [](const Shape& s) { return direct_all_reduce(s.world); }},
      {kAllReduce, "hierarchical", "inside nodes, between nodes, inside nodes",
       [](const Shape& s) { return hierarchical_all_reduce(s.world, s.ranks_per_node); }},
      {kAllReduce, "push", "one-sided on shared memory",
       [](const Shape& s) { return push_all_reduce(s.world); }, /*one_sided=*/true},
      {kAllReduce, "one-shot", "one-sided on shared memory, for small data",
       [](const Shape& s) { return one_shot_all_reduce(s.world); }, /*one_sided=*/true},
      {kBroadcast, "linear", "the root to everybody",
       [](const Shape& s) { return linear_broadcast(s.world, s.root); }},
      {kBroadcast, "binomial", "binomial tree",
       [](const Shape& s) { return binomial_broadcast(s.world, s.root); }},
      {kBroadcast, "scatter-all-gather", "scatter down a tree, then round a ring",
       [](const Shape& s) { return scatter_all_gather_broadcast(s.world, s.root); }},
      {kBroadcast, "pull", "one-sided on shared memory",
       [](const Shape& s) { return pull_broadcast(s.world, s.root); }, /*one_sided=*/true},
      {kReduce, "linear", "everybody to the root",
       [](const Shape& s) { return linear_reduce(s.world, s.root); }},
      {kReduce, "binomial", "binomial tree", [](const Shape& s) { return binomial_reduce(s.world, s.root); }},
      {kReduce, "push", "one-sided on shared memory",
       [](const Shape& s) { return push_reduce(s.world, s.root); }, /*one_sided=*/true},
      {kScatter, "linear", "the root to everybody",
       [](const Shape& s) { return linear_scatter(s.world, s.root); }},
      {kScatter, "binomial", "binomial tree",
       [](const Shape& s) { return binomial_scatter(s.world, s.root); }},
      {kGather, "linear", "everybody to the root",
       [](const Shape& s) { return linear_gather(s.world, s.root); }},
      {kGather, "binomial", "binomial tree", [](const Shape& s) { return binomial_gather(s.world, s.root); }},
      {kAllGather, "linear", "everybody to everybody",
       [](const Shape& s) { return linear_all_gather(s.world); }},
      {kAllGather, "ring", "round a ring", [](const Shape& s) { return ring_all_gather(s.world); }},
      {kAllGather, "push", "one-sided on shared memory",
       [](const Shape& s) { return push_all_gather(s.world); }, /*one_sided=*/true},
      {kReduceScatter, "linear", "each chunk to its owner",
       [](const Shape& s) { return linear_reduce_scatter(s.world); }},
      {kReduceScatter, "ring", "round a ring", [](const Shape& s) { return ring_reduce_scatter(s.world); }},
      {kReduceScatter, "pull", "one-sided on shared memory",
       [](const Shape& s) { return pull_reduce_scatter(s.world); }, /*one_sided=*/true},
      {kAllToAll, "linear", "everybody to everybody at once",
       [](const Shape& s) { return linear_all_to_all(s.world); }},
      {kAllToAll, "pairwise", "one partner at a time",
       [](const Shape& s) { return pairwise_all_to_all(s.world); }},
      {kAllToAll, "pull", "one-sided on shared memory",
       [](const Shape& s) { return pull_all_to_all(s.world); }, /*one_sided=*/true},
      {kBarrier, "linear", "everybody to rank 0 and back",
       [](const Shape& s) { return linear_barrier(s.world); }},
      {kBarrier, "dissemination", "to partners at distance 1, 2, 4, ...",
       [](const Shape& s) { return dissemination_barrier(s.world); }},
      {kBarrier, "flags", "one-sided on shared memory", [](const Shape& s) { return flag_barrier(s.world); },
       /*one_sided=*/true},
  };
  return all;
}

std::vector<Algorithm> algorithms_of(Collective collective) {
  std::vector<Algorithm> found;
  for (const auto& algorithm : algorithms()) {
    if (algorithm.collective == collective) found.push_back(algorithm);
  }
  return found;
}

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char letter : name) {
    if (letter == '-' || letter == '_' || letter == ' ') continue;
    plain += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return plain;
}

Collective find_collective(std::string_view wanted) {
  std::string known;
  for (int i = 0; i <= static_cast<int>(Collective::kBarrier); ++i) {
    const auto collective = static_cast<Collective>(i);
    if (plain_name(name(collective)) == plain_name(wanted)) return collective;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name(collective));
  }
  throw UsageError(fmt::format("collective '{}': unknown; hint: one of {}", wanted, known));
}

const Algorithm& find_algorithm(Collective collective, std::string_view wanted) {
  std::string known;
  for (const auto& candidate : algorithms()) {
    if (candidate.collective != collective) continue;
    if (plain_name(candidate.name) == plain_name(wanted)) return candidate;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate.name);
  }
  throw UsageError(
      fmt::format("{} by '{}': unknown algorithm; hint: one of {}", name(collective), wanted, known));
}

Plan make_plan(Collective collective, std::string_view algorithm, const Shape& shape) {
  return find_algorithm(collective, algorithm).make(shape);
}

}  // namespace lockstep::plan
