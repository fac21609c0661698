#include "transport/wired_job.h"

#include <algorithm>

#include "transport/wired_group.h"

namespace lockstep::transport {

WiredJob::WiredJob(std::string_view engine, int rank, int world, std::unique_ptr<Control> control,
                   std::unique_ptr<Wire> wire)
    : engine_(engine), rank_(rank), world_(world), control_(std::move(control)), wire_(std::move(wire)) {}

std::unique_ptr<Transport> WiredJob::make_group(const std::string& tag, const std::vector<int>& members,
                                                Control::Clock::time_point deadline) {
  std::vector<int> ascending = members;
  std::sort(ascending.begin(), ascending.end());
  // The lowest member numbers the group: several may be made at once, in another order on every rank. The
  // channels of group 0 are the engine's own, for setting up.
  const uint64_t proposal = 1 + groups_++ * static_cast<uint64_t>(world_) + static_cast<uint64_t>(rank_);
  const auto blobs = control_->all_gather(tag, ascending, std::to_string(proposal), deadline);
  const uint64_t number = std::stoull(blobs.front());
  const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
  return std::make_unique<WiredGroup>(*wire_, *control_, static_cast<int>(place), members, number);
}

}  // namespace lockstep::transport
