#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/control.h"
#include "transport/transport.h"

namespace lockstep::transport {

/// What an engine gives to one rank of a job: the way to make groups, and the control plane.
class Job {
 public:
  virtual ~Job() = default;
  virtual std::string_view engine() const = 0;
  virtual Control& control() = 0;
  /// Before this rank leaves: until what it sent is on its way for good.
  virtual void flush() {}
  /// After a failure: memory that a late rank may still write to is not given out again.
  virtual void retire_memory() {}
  /// Makes a group of these ranks of the job, in this order; all of them must call it, with the same unused
  /// tag.
  virtual std::unique_ptr<Transport> make_group(const std::string& tag, const std::vector<int>& members,
                                                Control::Clock::time_point deadline) = 0;
};

}  // namespace lockstep::transport
