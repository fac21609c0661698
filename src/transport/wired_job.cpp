#include "transport/wired_job.h"

#include <unistd.h>

#include <algorithm>

#include "transport/wired_group.h"

namespace lockstep::transport {

WiredJob::WiredJob(std::string_view engine, int rank, std::unique_ptr<Control> control,
                   std::unique_ptr<Wire> wire)
    : engine_(engine), rank_(rank), owner_(getpid()), control_(std::move(control)), wire_(std::move(wire)) {}

WiredJob::~WiredJob() {
  // A forked child has the wire's descriptors but none of its threads: it may only let go.
  if (getpid() != owner_) static_cast<void>(wire_.release());
}

std::unique_ptr<Transport> WiredJob::make_group(const std::string& tag, const std::vector<int>& members,
                                                Control::Clock::time_point deadline) {
  std::vector<int> ascending = members;
  std::sort(ascending.begin(), ascending.end());
  // The first number that is new to all members, who may have been in different groups before.
  uint64_t number = next_group_;
  for (const auto& blob : control_->all_gather(tag, ascending, std::to_string(next_group_), deadline)) {
    number = std::max<uint64_t>(number, std::stoull(blob));
  }
  next_group_ = number + 1;
  const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
  return std::make_unique<WiredGroup>(*wire_, *control_, static_cast<int>(place), members, number);
}

}  // namespace lockstep::transport
