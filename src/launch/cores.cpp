#include "launch/cores.h"

#include <hwloc/linux.h>

#include <algorithm>
#include <memory>

#include "launch/cgroup.h"
#include "launch/topology.h"

namespace lockstep::launch {

namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

std::vector<int> members(const hwloc_bitmap_s* bitmap) {
  std::vector<int> found;
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu)) {
    found.push_back(cpu);
  }
  return found;
}

std::vector<Core> one_core_each(const std::vector<int>& cpus) {
  std::vector<Core> cores;
  for (const int cpu : cpus) cores.push_back({{cpu}});
  return cores;
}

}  // namespace

std::vector<Core> allowed_cores() {
  const Topology topology = load_topology();
  if (!topology) return {{{0}}};
  const Bitmap allowed(hwloc_bitmap_alloc());
  if (hwloc_linux_get_tid_cpubind(topology.get(), 0, allowed.get()) != 0) return {{{0}}};
  std::vector<Core> cores;
  const Bitmap usable(hwloc_bitmap_alloc());
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_CORE, object)) != nullptr) {
    hwloc_bitmap_and(usable.get(), object->cpuset, allowed.get());
    if (hwloc_bitmap_iszero(usable.get()) == 0) cores.push_back({members(usable.get())});
  }
  // Some virtual machines and containers do not tell cores from hardware threads.
  return cores.empty() ? one_core_each(members(allowed.get())) : cores;
}

int usable_cores(const std::vector<Core>& cores, std::optional<double> cpu_quota) {
  const int allowed = std::max(1, static_cast<int>(cores.size()));
  if (!cpu_quota || *cpu_quota >= allowed) return allowed;
  return std::max(1, static_cast<int>(*cpu_quota));
}

int usable_cores() {
  return usable_cores(allowed_cores(), cgroup_limits().cpus);
}

std::vector<std::vector<int>> share_cores(const std::vector<Core>& cores, int ranks) {
  const auto count = static_cast<int>(cores.size());
  if (ranks < 1 || ranks > count) return {};
  std::vector<std::vector<int>> shares;
  auto next = cores.begin();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto last = next + count / ranks + (rank < count % ranks ? 1 : 0);
    auto& share = shares.emplace_back();
    for (; next != last; ++next) share.insert(share.end(), next->cpus.begin(), next->cpus.end());
  }
  return shares;
}

int threads_per_rank(int cores, int ranks) {
  return std::max(1, cores / std::max(1, ranks));
}

}  // namespace lockstep::launch
