#include "launch/memory.h"

#include <sys/statvfs.h>

#include <fstream>
#include <sstream>
#include <string>

#include "launch/topology.h"

namespace lockstep::launch {

Memory memory(const std::filesystem::path& root) {
  Memory found;
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {  // `MemTotal:       16384 kB`
    std::istringstream words(line);
    std::string name;
    uint64_t kibibytes = 0;
    if (!(words >> name >> kibibytes)) continue;
    if (name == "MemTotal:") found.total_bytes = kibibytes * 1024;
    if (name == "MemAvailable:") found.available_bytes = kibibytes * 1024;
  }
  return found;
}

std::vector<Cache> caches() {
  const Topology topology = load_topology();
  if (!topology) return {};
  std::vector<Cache> found;
  const hwloc_obj_type_t levels[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE,
                                     HWLOC_OBJ_L4CACHE};
  for (const hwloc_obj_type_t type : levels) {
    const hwloc_obj_t cache = hwloc_get_next_obj_by_type(topology.get(), type, nullptr);
    if (cache == nullptr) continue;
    const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology.get(), cache->cpuset, HWLOC_OBJ_CORE);
    found.push_back({.level = static_cast<int>(cache->attr->cache.depth),
                     .bytes = cache->attr->cache.size,
                     .cores = cores});
  }
  return found;
}

MemoryDisk dev_shm(const std::filesystem::path& path) {
  struct statvfs status {};
  if (statvfs(path.c_str(), &status) != 0) return {};
  return {.found = true,
          .total_bytes = uint64_t{status.f_blocks} * status.f_frsize,
          .free_bytes = uint64_t{status.f_bavail} * status.f_frsize};
}

}  // namespace lockstep::launch
