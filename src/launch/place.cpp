#include "launch/place.h"

#include <fmt/format.h>

#include <array>

namespace lockstep::launch {
namespace {

std::optional<int> optional_number(const Variables& variables, std::string_view name, int low, int high) {
  if (name.empty() || !variables.has(name)) return std::nullopt;
  return variables.number(name, low, high);
}

}  // namespace

Place read_place(const Variables& variables, const PlaceNames& names) {
  Place place;
  place.world_size = variables.number(names.world_size, 1, kMaxWorldSize);
  place.rank = variables.number(names.rank, 0, place.world_size - 1);
  place.local_world_size = variables.number(names.local_world_size, 1, place.world_size);
  place.local_rank = variables.number(names.local_rank, 0, place.local_world_size - 1);
  place.nodes = optional_number(variables, names.nodes, 1, place.world_size);
  place.node_rank =
      optional_number(variables, names.node_rank, 0, place.nodes.value_or(place.world_size) - 1);
  return completed(place, variables, names);
}

Place completed(Place place, const Variables& variables, const PlaceNames& names) {
  if (!place.nodes && place.local_world_size == place.world_size) place.nodes = 1;
  if (!place.nodes) return place;
  // Every other node has at least one rank, and a job on one node has all of its ranks there.
  const int elsewhere = place.world_size - place.local_world_size;
  if (elsewhere < *place.nodes - 1 || (*place.nodes == 1 && elsewhere > 0)) {
    variables.refuse(fmt::format("{} ranks on this node ({}) of {} ({}) do not make {} node(s) ({})",
                                 place.local_world_size, names.local_world_size, place.world_size,
                                 names.world_size, *place.nodes, names.nodes));
  }
  if (*place.nodes == 1) {
    if (place.node_rank.value_or(0) != 0) {
      variables.refuse(
          fmt::format("{} is not 0, but all ranks are on one node", variables.shown(names.node_rank)));
    }
    place.node_rank = 0;
  }
  return place;
}

void require_agreement(const Place& place, const PlaceNames& names, const PlaceNames& others,
                       const Variables& variables) {
  struct Pair {
    std::optional<int> value;
    std::string_view name;
    std::string_view other;
  };
  const std::array pairs{
      Pair{place.rank, names.rank, others.rank},
      Pair{place.world_size, names.world_size, others.world_size},
      Pair{place.local_rank, names.local_rank, others.local_rank},
      Pair{place.local_world_size, names.local_world_size, others.local_world_size},
      Pair{place.node_rank, names.node_rank, others.node_rank},
      Pair{place.nodes, names.nodes, others.nodes},
  };
  for (const auto& [value, name, other] : pairs) {
    if (!value || other.empty() || !variables.has(other)) continue;
    if (variables.number(other, 0, kMaxWorldSize) == *value) continue;
    // Only a node's place is ever known without a variable of its own.
    const std::string known = variables.has(name) ? variables.shown(name) : "all ranks being on one node";
    variables.refuse(fmt::format("{} contradicts {}", variables.shown(other), known));
  }
}

}  // namespace lockstep::launch
