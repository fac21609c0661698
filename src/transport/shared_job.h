#pragma once

#include <memory>

#include "transport/arena.h"
#include "transport/job.h"
#include "transport/shared_group.h"

namespace lockstep::transport {

/// An arena of the job, as this process sees it.
struct SharedMemory {
  std::byte* base;
  size_t span_bytes;
};

/// One rank of a job whose ranks reach each other's memory.
class SharedJob final : public Job {
 public:
  /// `memories` by rank. `keeps` is what must live as long as the job: peers' mappings, for instance.
  SharedJob(std::string_view engine, int rank, std::unique_ptr<Control> control, std::shared_ptr<Arena> arena,
            std::vector<SharedMemory> memories, std::shared_ptr<void> keeps, const GroupOptions& options);

  std::string_view engine() const override { return engine_; }
  Control& control() override { return *control_; }
  void retire_memory() override { arena_->retire(); }
  /// A group's blocks stay until the groups of all its members are gone, even after this rank has left the
  /// job.
  std::unique_ptr<Transport> make_group(const std::string& tag, const std::vector<int>& members,
                                        Control::Clock::time_point deadline) override;

 private:
  const std::string_view engine_;
  const int rank_;
  const std::shared_ptr<void> keeps_;
  const std::shared_ptr<Arena> arena_;
  const std::vector<SharedMemory> memories_;
  const GroupOptions options_;
  const std::unique_ptr<Control> control_;
};

}  // namespace lockstep::transport
