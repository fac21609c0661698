#include "transport/shared_job.h"

#include <algorithm>
#include <charconv>

#include "lockstep/error.h"

namespace lockstep::transport {

SharedJob::SharedJob(std::string_view engine, int rank, std::unique_ptr<Control> control,
                     std::shared_ptr<Arena> arena, std::vector<SharedMemory> memories,
                     std::shared_ptr<void> keeps, const GroupOptions& options)
    : engine_(engine),
      rank_(rank),
      keeps_(std::move(keeps)),
      arena_(std::move(arena)),
      memories_(std::move(memories)),
      options_(options),
      control_(std::move(control)) {}

std::unique_ptr<Transport> SharedJob::make_group(const std::string& tag, const std::vector<int>& members,
                                                 Control::Clock::time_point deadline) {
  const int world = static_cast<int>(members.size());
  void* const block = arena_->allocate(SharedGroup::block_bytes(world));
  if (block == nullptr) throw Error("shared memory: a job that used it has failed");
  arena_->deallocate_when_unused(block, SharedGroup::prepare(block, world, options_));
  std::vector<int> ascending = members;
  std::sort(ascending.begin(), ascending.end());
  const auto blobs = control_->all_gather(tag, ascending, std::to_string(arena_->offset_of(block)), deadline);

  std::vector<SharedGroup::Member> reached;
  for (const int member : members) {
    const auto at = std::lower_bound(ascending.begin(), ascending.end(), member) - ascending.begin();
    const SharedMemory& memory = memories_[static_cast<size_t>(member)];
    const std::string& blob = blobs[static_cast<size_t>(at)];
    size_t offset = SIZE_MAX;
    std::from_chars(blob.data(), blob.data() + blob.size(), offset);  // if it is not a number: refused below
    reached.push_back({memory.base, memory.span_bytes, offset});
  }
  const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
  return std::make_unique<SharedGroup>(
      static_cast<int>(place), std::move(reached), *arena_, options_,
      [this, members](int peer) { return control_->has_left(members[static_cast<size_t>(peer)]); });
}

}  // namespace lockstep::transport
