#pragma once

#include <map>
#include <string>
#include <vector>

#include "comms/ready_plan.h"
#include "lockstep/trace/writer.h"
#include "transport/transport.h"

namespace lockstep::comms {

/// The names of a plan's spans, made when it is first traced: of the whole call, and of each step as its plan
/// prints it.
class StepNames {
 public:
  /// `suffix` tells groups apart.
  explicit StepNames(std::string suffix) : suffix_(std::move(suffix)) {}

  struct Of {
    trace::Name call;
    std::vector<trace::Name> steps;
  };
  const Of& find(const ReadyPlan& ready);

 private:
  const std::string suffix_;
  std::map<const ReadyPlan*, Of> known_;
};

/// Records one call of a plan: a span for the call, also if it throws, and one for each step. While tracing
/// is off it costs a load and a few branches.
class StepTrace {
 public:
  StepTrace(StepNames& names, const ReadyPlan& ready, const transport::Header& header, int64_t bytes,
            trace::Stream stream)
      : ready_(ready), header_(header), bytes_(bytes), stream_(stream) {
    if (!trace::enabled()) return;
    names_ = &names.find(ready);
    begin_ns_ = trace::now_ns();
  }
  StepTrace(const StepTrace&) = delete;
  ~StepTrace() {
    if (names_ != nullptr) record(names_->call, begin_ns_, bytes_, -1);
  }

  /// When a step begins.
  int64_t now() const { return names_ == nullptr ? 0 : trace::now_ns(); }
  /// That a step has ended.
  void step(size_t index, int64_t begin_ns, size_t bytes) const {
    if (names_ != nullptr) {
      record(names_->steps[index], begin_ns, static_cast<int64_t>(bytes), ready_.steps[index].peer);
    }
  }

 private:
  void record(trace::Name name, int64_t begin_ns, int64_t bytes, int peer) const {
    trace::record(
        name, begin_ns, trace::now_ns(),
        {.stream = stream_, .bytes = bytes, .peer = peer, .call = static_cast<int64_t>(header_.call)});
  }

  const ReadyPlan& ready_;
  const transport::Header& header_;
  const int64_t bytes_;
  const trace::Stream stream_;
  const StepNames::Of* names_ = nullptr;  ///< Null while tracing is off.
  int64_t begin_ns_ = 0;
};

}  // namespace lockstep::comms
