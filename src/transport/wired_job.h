#pragma once

#include <sys/types.h>

#include "transport/job.h"
#include "transport/wire.h"

namespace lockstep::transport {

/// One rank of a job whose engine only moves messages.
class WiredJob final : public Job {
 public:
  WiredJob(std::string_view engine, int rank, std::unique_ptr<Control> control, std::unique_ptr<Wire> wire);
  ~WiredJob() override;

  std::string_view engine() const override { return engine_; }
  Control& control() override { return *control_; }
  /// All groups use the same connections.
  std::unique_ptr<Transport> make_group(const std::string& tag, const std::vector<int>& members,
                                        Control::Clock::time_point deadline) override;

 private:
  const std::string_view engine_;
  const int rank_;
  const pid_t owner_;
  const std::unique_ptr<Control> control_;
  std::unique_ptr<Wire> wire_;
  uint64_t next_group_ = 1;  ///< Channels of group 0 are the engine's own, for setting up.
};

}  // namespace lockstep::transport
