#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/comms/communicator.h"
#include "lockstep/parallel/ddp/options.h"

namespace lockstep::ddp {

/// What active ranks are about to do, for those that are done to do likewise.
enum class Phase : int64_t {
  kNone,
  kWeigh,
  kBroadcastBuffers,
  kBackward,
  kNormalise,         ///< The statistics of a SyncBatchNorm, in forward.
  kNormaliseBackward  ///< Its sums, in backward.
};

/// What a rank tells before each phase.
struct Pulse {
  bool is_active = false;
  Phase phase = Phase::kNone;
  int64_t batch = 0;  ///< Samples, if they are to be summed.
  int64_t norm = 0;   ///< Which SyncBatchNorm of the model.
  bool has_failed = false;
};

/// Keeps ranks in step that have different numbers of batches: before each phase all of them, also those that
/// are done, tell where they are.
class JoinState {
 public:
  explicit JoinState(Communicator comm) : comm_(std::move(comm)) {}

  bool is_on() const { return on_; }
  void begin(const JoinOptions& options);
  void end() { on_ = false; }

  /// Exchanges pulses. Throws Error, on all ranks, if one failed, if active ones are in different phases, or
  /// if one is done and the options refuse that.
  void tell(const Pulse& pulse);

  // What was heard last.
  int active() const { return active_; }
  int lowest_active() const { return lowest_active_; }  ///< The last one known, when none is left.
  bool all_threw() const { return all_threw_; }
  Phase phase() const { return phase_; }
  size_t norm() const { return norm_; }
  int64_t batch_sum() const { return batch_sum_; }
  /// What turns a mean over all ranks into the mean that is wanted.
  double factor() const {
    return on_ && !options_.divide_by_initial_world_size ? static_cast<double>(comm_.world_size()) / active_
                                                         : 1;
  }

 private:
  Communicator comm_;
  JoinOptions options_;
  bool on_ = false;
  bool all_threw_ = false;
  int active_ = 0;
  int lowest_active_ = 0;
  Phase phase_ = Phase::kNone;
  size_t norm_ = 0;
  int64_t batch_sum_ = 0;
};

}  // namespace lockstep::ddp
