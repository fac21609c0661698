#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

// The other collectives, each in a linear form and in the best logarithmic or bandwidth-optimal one. Trees
// are binomial and may have any root.

Plan linear_broadcast(int world, int root);    ///< 1 round; the root sends P-1 times all.
Plan binomial_broadcast(int world, int root);  ///< ceil(log2 P) rounds of S bytes.
Plan scatter_all_gather_broadcast(
    int world, int root);  ///< Binomial scatter, ring all-gather: 2(P-1)/P S bytes. (van de Geijn.)

Plan linear_reduce(int world, int root);    ///< 1 round; the root adds in rank order.
Plan binomial_reduce(int world, int root);  ///< ceil(log2 P) rounds of S bytes.

Plan linear_scatter(int world, int root);    ///< 1 round.
Plan binomial_scatter(int world, int root);  ///< ceil(log2 P) rounds, the same bytes leave the root.

Plan linear_gather(int world, int root);    ///< 1 round.
Plan binomial_gather(int world, int root);  ///< ceil(log2 P) rounds, the same bytes reach the root.

Plan linear_all_gather(int world);  ///< 1 round; everybody to everybody.
Plan ring_all_gather(int world);    ///< P-1 rounds between neighbours; the least bytes.

Plan linear_reduce_scatter(int world);  ///< 1 round; owners add in rank order.
Plan ring_reduce_scatter(int world);    ///< P-1 rounds between neighbours; the least bytes.

Plan linear_all_to_all(int world);    ///< 1 round; everybody to everybody.
Plan pairwise_all_to_all(int world);  ///< P-1 rounds, one partner at a time.

Plan linear_barrier(int world);         ///< 2 rounds through rank 0.
Plan dissemination_barrier(int world);  ///< ceil(log2 P) rounds. (Hensgen, Finkel and Manber, 1988.)

/// One-sided: everybody raises its flag and waits for all others'.
Plan flag_barrier(int world);

// One-sided: two flags after each other, and nothing is copied on the way. Reductions add in rank order.

Plan pull_broadcast(int world, int root);  ///< Everybody loads all from the root.
Plan push_reduce(int world, int root);     ///< Rank r adds chunk r of all and stores it at the root.
Plan push_all_gather(int world);           ///< Everybody stores its part at all others.
Plan pull_reduce_scatter(int world);       ///< Rank r adds chunk r of all.
Plan pull_all_to_all(int world);           ///< Everybody loads its piece from all others.

/// What a plan is made for.
struct Shape {
  int world = 1;
  int root = 0;
  int ranks_per_node = 1;
};

/// A named way to make a plan.
struct Algorithm {
  Collective collective;
  std::string_view name;
  std::string_view summary;
  Plan (*make)(const Shape& shape);
  bool one_sided = false;  ///< It needs memory that all ranks share.
};

/// All of them; within a collective, simplest first.
const std::vector<Algorithm>& algorithms();

/// Those of one collective.
std::vector<Algorithm> algorithms_of(Collective collective);

/// One of algorithms(), by a forgiving name. Throws UsageError with what the collective has.
const Algorithm& find_algorithm(Collective collective, std::string_view name);

/// Makes a plan by name. Names are forgiving (`all_reduce`, `all-reduce`, `allreduce`). Throws UsageError
/// with what there is.
Collective find_collective(std::string_view name);
Plan make_plan(Collective collective, std::string_view algorithm, const Shape& shape);

/// Lower case without dashes, underscores and spaces: how names are compared.
std::string plain_name(std::string_view name);

}  // namespace lockstep::plan
