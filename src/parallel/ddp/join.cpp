#include "parallel/ddp/join.h"

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep::ddp {

void JoinState::begin(const JoinOptions& options) {
  if (on_) throw UsageError("ddp join: within another; hint: call it once, round the outer loop");
  options_ = options;
  on_ = true;
  all_threw_ = false;
  active_ = comm_.world_size();
  lowest_active_ = 0;
}

void JoinState::tell(const Pulse& pulse) {
  std::vector<int64_t> own = {pulse.is_active ? 1 : 0, static_cast<int64_t>(pulse.phase), pulse.batch,
                              pulse.has_failed ? 1 : 0};
  std::vector<int64_t> all(own.size() * static_cast<size_t>(comm_.world_size()));
  comm_.all_gather(own, all);
  active_ = 0;
  batch_sum_ = 0;
  int failed = -1;
  int done = -1;
  for (int rank = comm_.world_size() - 1; rank >= 0; --rank) {
    const int64_t* const theirs = all.data() + static_cast<size_t>(rank) * own.size();
    batch_sum_ += theirs[2];
    if (theirs[3] != 0) failed = rank;
    if (theirs[0] == 0) {
      done = rank;
      continue;
    }
    ++active_;
    lowest_active_ = rank;
    phase_ = static_cast<Phase>(theirs[1]);
  }
  if (pulse.has_failed) return;  // what it threw itself is on its way
  if (failed >= 0) {
    all_threw_ = true;
    throw Error(fmt::format("ddp join: rank {} threw in its loop; hint: its own error says why", failed));
  }
  if (options_.throw_on_early_termination && done >= 0 && active_ > 0) {
    all_threw_ = true;
    throw Error(
        fmt::format("ddp join: rank {} has no more inputs, {} ranks have; hint: give all ranks equally "
                    "many batches, or allow it by throw_on_early_termination = false",
                    done, active_));
  }
}

}  // namespace lockstep::ddp
