#pragma once

#include <atomic>

#include "transport/job.h"
#include "transport/wire.h"

namespace lockstep::transport {

/// One rank of a job whose engine only moves messages.
class WiredJob final : public Job {
 public:
  WiredJob(std::string_view engine, int rank, int world, std::unique_ptr<Control> control,
           std::unique_ptr<Wire> wire);

  std::string_view engine() const override { return engine_; }
  Control& control() override { return *control_; }
  void flush() override { wire_->flush(); }
  /// All groups use the same connections.
  std::unique_ptr<Transport> make_group(const std::string& tag, const std::vector<int>& members,
                                        Control::Clock::time_point deadline) override;

 private:
  const std::string_view engine_;
  const int rank_;
  const int world_;
  const std::unique_ptr<Control> control_;
  const std::unique_ptr<Wire> wire_;
  std::atomic<uint64_t> groups_ = 0;  ///< Proposed by this rank so far.
};

}  // namespace lockstep::transport
