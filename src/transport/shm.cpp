#include "transport/shm.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "launch/cores.h"
#include "lockstep/error.h"
#include "transport/meet_job.h"
#include "transport/process_arena.h"
#include "transport/shared_job.h"

namespace lockstep::transport {

namespace {

/// Whether the ranks have fewer cores than they are, taken together: each may be bound to its own.
bool are_crowded(Control& control, int world, Control::Clock::time_point deadline) {
  std::string own;
  for (const auto& core : launch::allowed_cores()) own += fmt::format("{} ", core.cpus.front());
  std::vector<int> everybody;
  for (int rank = 0; rank < world; ++rank) everybody.push_back(rank);
  std::set<int> cores;
  for (const auto& blob : control.all_gather("cores", everybody, own, deadline)) {
    std::istringstream words(blob);
    for (int cpu = 0; words >> cpu;) cores.insert(cpu);
  }
  return static_cast<size_t>(world) > std::max<size_t>(cores.size(), 1);
}

}  // namespace

std::unique_ptr<Job> connect_shm(const Identity& identity, Control::Clock::time_point deadline) {
  if (identity.local_world_size != identity.world_size) {
    throw UsageError(
        fmt::format("engine shm: {} of {} ranks are on this node; hint: use the engine gloo or mpi",
                    identity.local_world_size, identity.world_size));
  }
  auto arena = process_arena(identity.local_world_size);
  Host host = meet_on_host({.rank = identity.rank,
                            .world = identity.world_size,
                            .name = "shm " + meeting_name(identity),
                            .deadline = deadline},
                           arena->mapping().descriptor());

  auto mappings = std::make_shared<std::vector<Mapping>>();
  std::vector<SharedMemory> memories;
  for (int rank = 0; rank < identity.world_size; ++rank) {
    if (rank == identity.rank) {
      memories.push_back({arena->mapping().base(), arena->mapping().span_bytes()});
      continue;
    }
    mappings->push_back(Mapping::attach(host.descriptors[static_cast<size_t>(rank)].get(), rank));
    memories.push_back({mappings->back().base(), mappings->back().span_bytes()});
  }
  const GroupOptions options = {.crowded = are_crowded(*host.control, identity.world_size, deadline)};
  return std::make_unique<SharedJob>("shm", identity.rank, std::move(host.control), std::move(arena),
                                     std::move(memories), std::move(mappings), options);
}

}  // namespace lockstep::transport
