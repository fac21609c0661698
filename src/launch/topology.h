#pragma once

#include <hwloc.h>

#include <memory>
#include <utility>

namespace lockstep::launch {

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};

/// hwloc's view of this machine.
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

/// Reads it, in about 5 ms; null if hwloc cannot.
inline Topology load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Topology owned(topology);
  return hwloc_topology_load(topology) == 0 ? std::move(owned) : nullptr;
}

}  // namespace lockstep::launch
